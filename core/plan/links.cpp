#include "core/plan/links.h"

#include <memory>
#include <set>

#include "consist/cost.h"
#include "consist/error.h"
#include "core/config/dataset_choices.h"
#include "core/files/split.h"
#include "core/plan/parts.h"

namespace consist {
namespace {

CostModel costs_of(const Plan& plan) {
  return {plan.target().machine, plan.layout().mesh, named_transports(plan.config(), plan.layout())};
}

std::string names_of(const Machine& machine) {
  std::string names;
  for (const TransportLinks& links : machine.transports) names += (names.empty() ? "" : ", ") + links.transport;
  return names.empty() ? "none" : names;
}

/// Null where it cannot be made, which only matters to runs.
std::shared_ptr<Transport> made(const std::string& transport, const RunConfig& config, PluginHost& host) {
  try {
    return host.make<Transport>("transport", transport, options_of_owner(config, transport));
  } catch (const UsageError&) {
    throw;
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

std::vector<std::string> named_transports(const RunConfig& config, const Layout& layout) {
  std::vector<std::string> names;
  for (int axis = 0; axis < layout.mesh.axes(); ++axis)
    names.push_back(named_transport_for(config, layout.strategy_of(axis).name));
  return names;
}

std::string unknown_links(const CostModel& costs, AxisSet axes) {
  if (costs.knows_links(axes)) return {};
  const std::string &transport = costs.transport(axes), &machine = costs.machine().name;
  const bool crosses = costs.crosses_nodes(axes);
  return "How fast '" + transport + "' is " + (crosses ? "between nodes" : "within a node") + " of " + machine +
         " is not known (known: " + names_of(costs.machine()) +
         "): it counts as links without a transport. Measure it with `consist calibrate --transport " + transport +
         "`, or give " + transport + (crosses ? "-network" : "-node") + "=BYTES/S behind --machine.";
}

std::vector<AxisLinks> links_of(const Plan& plan) {
  const CostModel costs = costs_of(plan);
  std::vector<AxisLinks> all;
  for (int axis = 0; axis < plan.layout().mesh.axes(); ++axis) {
    all.push_back(
        {plan.layout().mesh.axis(axis).name, costs.transport(axis), costs.crosses_nodes(axis), unknown_links(costs, axis)});
  }
  return all;
}

std::string text_of(std::span<const AxisLinks> links) {
  std::string text;
  for (const AxisLinks& of_axis : links) {
    if (of_axis.transport.empty()) continue;
    text += (text.empty() ? "" : ", ") + of_axis.axis + " over " + of_axis.transport +
            (of_axis.crosses_nodes ? " across nodes" : " within nodes");
  }
  return text;
}

std::string unknown_text(std::span<const AxisLinks> links) {
  std::set<std::string> said;
  std::string text;
  for (const AxisLinks& of_axis : links) {
    if (!of_axis.unknown.empty() && said.insert(of_axis.unknown).second) text += of_axis.unknown + "\n";
  }
  return text;
}

void check_links(const Plan& plan, PluginHost& host) {
  const CostModel costs = costs_of(plan);
  const Machine& machine = costs.machine();
  for (int axis = 0; axis < plan.layout().mesh.axes(); ++axis) {
    if (costs.transport(axis).empty()) continue;
    const std::shared_ptr<Transport> transport = made(costs.transport(axis), plan.config(), host);
    const std::string reason = transport ? transport->cannot_connect(machine.device_kind, costs.crosses_nodes(axis)) : "";
    if (reason.empty()) continue;
    throw UsageError("transport '" + costs.transport(axis) + "' cannot connect the groups of axis '" +
                     plan.layout().mesh.axis(axis).name + "' (strategy " + plan.layout().strategy_of(axis).name +
                     "), which lie " + (costs.crosses_nodes(axis) ? "on several nodes" : "within a node") + " of " +
                     machine.name + " with " + std::to_string(machine.ranks_per_node) +
                     (machine.ranks_per_node == 1 ? " rank" : " ranks") + " a node: " + reason);
  }
}

std::vector<std::string> agree_on_transports(Job& job, const RunConfig& config, const Layout& layout) {
  constexpr const char* key = "plan.transports";
  std::vector<std::string> names = named_transports(config, layout);
  if (job.size() == 1 || names.empty()) return names;
  if (job.rank() == 0) {
    std::string text;
    for (std::size_t axis = 0; axis < names.size(); ++axis) text += (axis == 0 ? "" : "\n") + names[axis];
    job.put(key, text);
    return names;
  }
  const std::string text = job.get(key, job.timeout());
  const std::vector<std::string_view> agreed = split(text, '\n');
  return {agreed.begin(), agreed.end()};
}

std::size_t transport_over(AxisSet axes, const Mesh& mesh, std::span<const std::string> transports) {
  const auto first = static_cast<std::size_t>(axes.first());
  for (const int axis : axes) {
    const std::string& other = transports[static_cast<std::size_t>(axis)];
    if (other == transports[first]) continue;
    const auto name = [](const std::string& transport) {
      return transport.empty() ? std::string("none") : "'" + transport + "'";
    };
    throw UsageError("collectives over the axes '" + mesh.text(axes) + "' need one transport, but '" +
                     mesh.axis(axes.first()).name + "' has " + name(transports[first]) + " and '" + mesh.axis(axis).name +
                     "' has " + name(other) + "; give all strategies of these axes the same --transport");
  }
  return first;
}

void check_transports(const Program& program, std::span<const std::string> transports) {
  std::set<AxisSet> known;
  for (const Instruction& i : program.instructions) {
    if (i.queue.is_communication() && known.insert(i.queue.axes()).second)
      transport_over(i.queue.axes(), program.mesh, transports);
  }
}

}  // namespace consist
