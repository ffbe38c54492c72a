#include "core/plan/transports.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "consist/error.h"
#include "consist/log.h"
#include "consist/transport.h"
#include "core/config/dataset_choices.h"
#include "core/plan/parts.h"

namespace consist {
namespace {

struct Offer {
  std::string name;
  std::shared_ptr<Transport> transport;
};

/// All transports that can be made. Runs do not end by one that nobody asked for.
std::vector<Offer> offers(const RunConfig& config, PluginHost& host) {
  std::vector<Offer> all;
  for (const std::string& name : host.names("transport")) {
    const std::map<std::string, std::string> options = options_of_owner(config, name);
    try {
      all.push_back({name, host.make<Transport>("transport", name, options)});
    } catch (const std::exception& error) {
      if (!options.empty()) throw;
      log::warn("transport '" + name + "' is left out: " + error.what());
    }
  }
  return all;
}

/// The first sentence of a reason that may have several lines.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// `missing`: why a transport is not there, for groups within a node or on several; empty if it is.
AutomaticTransports choose(const std::vector<Offer>& offers, const std::string& device_kind,
                           const std::function<std::string(const Offer&, bool)>& missing) {
  AutomaticTransports chosen;
  for (const bool several : {false, true}) {
    std::vector<std::pair<int, const Offer*>> candidates;
    for (const Offer& offer : offers) {
      const int preference = offer.transport->preference(device_kind, several);
      if (preference > 0 && offer.transport->cannot_connect(device_kind, several).empty())
        candidates.emplace_back(preference, &offer);
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    chosen.is_open[several] = candidates.size() > 1;
    for (const auto& [preference, offer] : candidates) {
      const std::string reason = missing(*offer, several);
      chosen.names[several] = offer->name;  // the last one serves everywhere, and says by itself where it does not
      if (reason.empty()) break;
      if (offer == candidates.back().second) break;
      chosen.reasons[several] += (chosen.reasons[several].empty() ? "not " : "; not ") + offer->name + ": " + first_line(reason);
    }
  }
  for (const Offer& offer : offers) {
    const bool is_chosen = offer.name == chosen.names[0] || offer.name == chosen.names[1];
    if (is_chosen && offer.transport->preference(device_kind, false) > 0 && offer.transport->preference(device_kind, true) > 0)
      chosen.of_both = offer.name;
  }
  return chosen;
}

/// For a plan with groups of both kinds.
void take_one_for_both(AutomaticTransports& chosen) {
  for (const bool several : {false, true}) {
    std::string& name = chosen.names[several];
    if (chosen.of_both.empty() || name == chosen.of_both) continue;
    chosen.reasons[several] += std::string(chosen.reasons[several].empty() ? "not " : "; not ") + name + ": " + chosen.of_both +
                               " connects " + (several ? "the insides of nodes" : "the nodes") + " and goes with no other";
    name = chosen.of_both;
  }
}

nlohmann::json json_of(const AutomaticTransports& chosen) {
  return {{"names", chosen.names}, {"reasons", chosen.reasons}, {"is_open", chosen.is_open}, {"of_both", chosen.of_both}};
}

AutomaticTransports chosen_from(const nlohmann::json& json) {
  AutomaticTransports chosen;
  json.at("names").get_to(chosen.names);
  json.at("reasons").get_to(chosen.reasons);
  json.at("is_open").get_to(chosen.is_open);
  json.at("of_both").get_to(chosen.of_both);
  return chosen;
}

/// True if the transport connects groups across hosts, but none within a host.
bool connects_hosts_alone(const std::array<std::string, 2>& refusals) {
  return !refusals[0].empty() && refusals[1].empty();
}

std::string asked_for(const RunConfig& config, const Layout& layout, int axis) {
  for (const std::string& key : {layout.mesh.axis(axis).name, layout.strategy_of(axis).name}) {
    if (const auto own = config.transport_of.find(key); own != config.transport_of.end()) return own->second;
  }
  return config.transport;
}

void check_keys(const RunConfig& config, const Layout& layout) {
  std::string axes;
  std::set<std::string> known;
  for (const StrategyChoice& choice : config.strategies) known.insert(choice.name);
  for (int axis = 0; axis < layout.mesh.axes(); ++axis) {
    known.insert(layout.mesh.axis(axis).name);
    axes += (axis == 0 ? "" : ", ") + layout.mesh.axis(axis).name;
  }
  for (const auto& [key, transport] : config.transport_of) {
    if (known.contains(key)) continue;
    throw UsageError("--transport names '" + key + "', which is not in --strategy " + text_of(config.strategies) +
                     (axes.empty() ? ", and one rank has no axes" : " and is no axis of its mesh (" + axes + ")"));
  }
}

std::string in_words(const Layout& layout, AxisSet axes) {
  std::string strategies;
  for (const int axis : axes) {
    const std::string& name = layout.strategy_of(axis).name;
    if (strategies.find(name) == std::string::npos) strategies += (strategies.empty() ? "" : ", ") + name;
  }
  return (axes.count() == 1 ? "axis '" : "axes '") + layout.mesh.text(axes) + "' (strategy " + strategies + ")";
}

/// The sets of axes that a run connects.
std::set<AxisSet> connected_sets(const Program& program) {
  std::set<AxisSet> sets;
  AxisSet reached;
  for (const Instruction& i : program.instructions) {
    if (!i.queue.is_communication()) continue;
    sets.insert(i.queue.axes());
    reached |= i.queue.axes();
  }
  for (int axis = 0; axis < program.mesh.axes(); ++axis) {
    if (!reached.contains(axis)) sets.insert(axis);
  }
  return sets;
}

/// Throws where the axes have different transports. Returns theirs.
std::string one_transport(const CostModel& costs, const Mesh& mesh, AxisSet axes) {
  const std::vector<std::string> names = costs.transports_over(axes, costs.crosses_nodes(axes));
  if (names.size() == 1) return names.front();
  const auto name = [](const std::string& transport) { return transport.empty() ? std::string("none") : "'" + transport + "'"; };
  throw UsageError("collectives over the axes '" + mesh.text(axes) + "' need one transport, but their axes have " +
                   name(names[0]) + " and " + name(names[1]) + "; give all strategies of these axes the same --transport");
}

std::string place_of(const CostModel& costs, bool several) {
  const Machine& machine = costs.machine();
  return std::string(several ? "on several nodes" : "within a node") + " of " + machine.name + " with " +
         std::to_string(machine.ranks_per_node) + (machine.ranks_per_node == 1 ? " rank" : " ranks") + " a node";
}

}  // namespace

AutomaticTransports automatic_transports(const RunConfig& config, PluginHost& host, const Machine& machine) {
  return choose(offers(config, host), machine.device_kind, [&](const Offer& offer, bool several) -> std::string {
    const TransportLinks* const known = machine.find_transport(offer.name);
    if (known != nullptr && (several ? known->network : known->node)) return "";
    return machine.name + " has no such links " + (several ? "between nodes" : "within a node");
  });
}

AutomaticTransports agree_on_transports(Job& job, const RunConfig& config, PluginHost& host, const std::string& device_kind) {
  constexpr const char* name = "plan.transports";
  if (job.rank() != 0) return chosen_from(nlohmann::json::parse(job.broadcast(name, "", job.timeout())));
  const AutomaticTransports chosen = choose(offers(config, host), device_kind, [&](const Offer& offer, bool /*several*/) {
    return offer.transport->unavailable(device_kind);
  });
  job.broadcast(name, json_of(chosen).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), job.timeout());
  return chosen;
}

PlannedTransports plan_transports(const RunConfig& config, const Layout& layout, const Machine& machine, PluginHost& host,
                                  const std::string& device_kind, const std::optional<AutomaticTransports>& automatic) {
  check_keys(config, layout);
  PlannedTransports planned;
  for (int axis = 0; axis < layout.mesh.axes(); ++axis) {
    const std::string& name = planned.asked.emplace_back(asked_for(config, layout, axis));
    if (name == automatic_transport || planned.refusals.contains(name)) continue;
    std::array<std::string, 2>& refusals = planned.refusals[name];
    try {
      const auto transport = host.make<Transport>("transport", name, options_of_owner(config, name));
      refusals = {transport->cannot_connect(device_kind, false), transport->cannot_connect(device_kind, true)};
    } catch (const UsageError&) {
      throw;
    } catch (const Error&) {  // it cannot be made here, which only matters to runs
    }
  }
  const bool asks = std::any_of(planned.asked.begin(), planned.asked.end(), [&](const std::string& name) {
    return name == automatic_transport || connects_hosts_alone(planned.refusals.at(name));
  });
  if (asks) {
    planned.automatic = automatic ? *automatic : automatic_transports(config, host, machine);
    if (machine.ranks_per_node > 1 && layout.mesh.ranks() > machine.ranks_per_node) take_one_for_both(planned.automatic);
  }
  for (const std::string& name : planned.asked) {
    const std::array<std::string, 2>& chosen = planned.automatic.names;
    if (name == automatic_transport)
      planned.by_axis.emplace_back(chosen[0], chosen[1]);
    else
      planned.by_axis.emplace_back(connects_hosts_alone(planned.refusals.at(name)) ? chosen[0] : name, name);
  }
  return planned;
}

void check_transports(const Program& program, const Layout& layout, const PlannedTransports& transports) {
  const CostModel& costs = costs_of(program);
  std::set<std::string> taken;
  for (const AxisSet axes : connected_sets(program)) {
    const std::string name = one_transport(costs, program.mesh, axes);
    const bool several = costs.crosses_nodes(axes);
    taken.insert(name);
    if (name.empty())
      throw UsageError("--transport auto: there is no transport that connects the groups of " + in_words(layout, axes) +
                       ", which lie " + place_of(costs, several) + "; name one");
    const auto known = transports.refusals.find(name);
    if (known == transports.refusals.end() || known->second[several].empty()) continue;
    throw UsageError("transport '" + name + "' cannot connect the groups of " + in_words(layout, axes) + ", which lie " +
                     place_of(costs, several) + ": " + known->second[several]);
  }
  for (std::size_t axis = 0; axis < transports.asked.size(); ++axis) {
    const std::string& name = transports.asked[axis];
    if (name == automatic_transport || taken.contains(name)) continue;
    throw UsageError("transport '" + name + "' cannot connect the groups of " + in_words(layout, static_cast<int>(axis)) +
                     ", which lie " + place_of(costs, false) + ": " + transports.refusals.at(name)[0]);
  }
}

std::string option_text(const PlannedTransports& transports, const CostModel& costs, const Mesh& mesh) {
  std::string common, text;
  for (int axis = mesh.axes() - 1; axis >= 0; --axis) {
    const AxisTransports& of_axis = transports.by_axis[static_cast<std::size_t>(axis)];
    const std::string& name = costs.crosses_nodes(axis) ? of_axis.across : of_axis.within;
    if (common.empty()) common = name;
    if (name != common) text += "+" + mesh.axis(axis).name + "=" + name;
  }
  return common + text;
}

}  // namespace consist
