#include "launch/tune/space.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "consist/error.h"
#include "core/config/option_value.h"
#include "core/config/run_facts.h"
#include "core/passes/reduced_step.h"
#include "core/plan/parts.h"

namespace consist::launch {
namespace {

std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) all.push_back(d);
  }
  return all;
}

/// The strategies that there are, by what they divide.
struct Strategies {
  std::vector<std::string> within_layers, of_stages, of_batch, of_sequence, of_experts;
  std::set<std::string> on_two_axes;  ///< of those that split the batch
  /// Of those, one within the other: parts of parameters, and replicas of the parts (hybrid sharding).
  std::vector<std::pair<std::string, std::string>> inner_and_outer;

  explicit Strategies(PluginHost& host) {
    std::vector<AxisRequest> requests;  // of those that split the batch
    for (const std::string& name : host.names("strategy")) {
      AxisRequest request;
      try {
        request = host.make<ParallelStrategy>("strategy", name, {})->axis();
      } catch (const Error&) {
        continue;  // it needs options, or cannot be loaded: whoever names it is told
      }
      if (request.splits_batch && request.takes_rest) {
        of_batch.push_back(name);
        requests.push_back(request);
        if (request.least_axes <= 2 && request.most_axes >= 2) on_two_axes.insert(name);
      } else if (makes_stages(request)) {
        of_stages.push_back(name);
      } else if (request.shares_parameters) {
        (request.splits_batch ? of_experts : of_sequence).push_back(name);
      } else if (!request.splits_batch && request.distance == 0) {
        within_layers.push_back(name);
      }
    }
    for (std::size_t a = 0; a < of_batch.size(); ++a) {
      for (std::size_t b = 0; b < of_batch.size(); ++b) {
        if (requests[a].name == requests[b].name && requests[a].distance < requests[b].distance)
          inner_and_outer.emplace_back(of_batch[a], of_batch[b]);
      }
    }
  }
};

/// "tp-sp=4", or nothing of one rank.
std::vector<std::string> terms_of(const std::vector<std::string>& names, int size) {
  if (size == 1) return {""};
  std::vector<std::string> terms;
  for (const std::string& name : names) terms.push_back(name + "=" + std::to_string(size));
  return terms;
}

/// Also, over several nodes, one axis between the nodes and one within: of one strategy, or of one that divides parameters within
/// a node and one that sums their gradients between nodes. Of one rank those that work where others share their parameters.
std::vector<std::string> data_terms(const Strategies& strategies, int size, int within_node, bool others_share) {
  if (size == 1 && !others_share) return {""};
  std::vector<std::string> terms;
  const bool several = within_node > 1 && size > within_node && size % within_node == 0;
  const std::string within = std::to_string(within_node), nodes = std::to_string(several ? size / within_node : 1);
  for (const std::string& name : strategies.of_batch) {
    terms.push_back(name);
    if (!several) continue;
    if (strategies.on_two_axes.contains(name)) terms.push_back(name + "=" + nodes + "x" + within);
    for (const auto& [inner, outer] : strategies.inner_and_outer) {
      if (inner == name) terms.push_back(inner + "=" + within + "+" + outer + "=" + nodes);
    }
  }
  return terms;
}

/// Whether a sequence is long enough for `context` ranks to have a part each, whose tokens `tensor` ranks share again.
bool can_divide(std::int64_t sequence, int context, int tensor) {
  constexpr std::int64_t shortest = 2048;  // tokens of a part: of fewer, products and attention leave GPUs idle
  return context == 1 || (sequence % (2 * context * tensor) == 0 && sequence / context >= shortest);
}

/// The ranks of each kind of strategy.
struct Division {
  int tensor, stages, context, experts, data;
};

std::vector<Division> divisions(const RunConfig& config, const ModelSizes& sizes, const Machine& machine) {
  std::vector<Division> all;
  for (const int tensor : divisors(config.ranks)) {
    if (tensor > machine.ranks_per_node || sizes.kv_heads % tensor != 0) continue;
    for (const int stages : divisors(config.ranks / tensor)) {
      if (stages > sizes.layers) continue;
      for (const int context : divisors(config.ranks / tensor / stages)) {
        if (!can_divide(config.sequence, context, tensor)) continue;
        for (const int experts : divisors(config.ranks / tensor / stages / context)) {
          if (experts > 1 && (sizes.experts == 0 || sizes.experts % experts != 0)) continue;
          all.push_back({tensor, stages, context, experts, config.ranks / tensor / stages / context / experts});
        }
      }
    }
  }
  return all;
}

/// Every choice of one term from each list, joined by "+".
std::vector<std::string> joined(const std::vector<std::vector<std::string>>& lists) {
  std::vector<std::string> texts{""};
  for (const std::vector<std::string>& terms : lists) {
    std::vector<std::string> longer;
    for (const std::string& text : texts) {
      for (const std::string& term : terms) longer.push_back(text.empty() || term.empty() ? text + term : text + "+" + term);
    }
    texts = std::move(longer);
  }
  return texts;
}

/// The tunable options of a plugin that the user has not given. What those of a precision change is rounding (OptionSpec::tunable).
void add_options(std::vector<Dimension>& dimensions, const std::string& kind, const std::string& owner, const RunConfig& config,
                 const RunFacts& facts, PluginHost& host) {
  const auto options = config.plugin_options.find(owner);
  const std::map<std::string, std::string> given =
      options == config.plugin_options.end() ? std::map<std::string, std::string>{} : options->second;
  const std::vector<OptionSpec> table = host.option_table(kind, owner);
  for (const OptionSpec& spec : table) {
    Dimension dimension{.option = owner + "." + spec.name,
                        .values = tunable_values(spec, "--" + owner + "." + spec.name, facts),
                        .numerics = kind == "precision"};
    if (dimension.values.size() < 2 || given.contains(spec.name)) continue;
    const OptionNeed need = need_of(spec);
    const auto needed = std::find_if(table.begin(), table.end(), [&](const OptionSpec& s) { return need.option == s.name; });
    if (needed != table.end() && *needed->tunable != '\0' && !given.contains(need.option)) {  // which is searched, too
      dimension.needs_option = owner + "." + need.option;
      dimension.needs_values = need.values;
    } else if (!need.is_met_by(value_of(table, given, need.option, facts))) {
      continue;
    }
    dimensions.push_back(std::move(dimension));
  }
}

}  // namespace

int stages_of(const Layout& layout) {
  int stages = 1;
  for (const StrategyUse& use : layout.active) {
    if (makes_stages(use.strategy->axis())) stages *= use.size;
  }
  return stages;
}

std::vector<std::int64_t> micro_batches(std::int64_t sequences, int stages) {
  constexpr std::int64_t largest = 64;
  std::vector<std::int64_t> all;
  for (std::int64_t batch = std::min(sequences, largest); batch >= 1; --batch) {
    if (sequences % batch != 0) continue;
    if (stages > 1 && sequences / batch < std::min<std::int64_t>(stages, sequences)) continue;
    all.push_back(batch);
  }
  return all;
}

Space::Space(const RunConfig& config, const Settled& settled, const Machine& machine, PluginHost& host,
             const std::vector<std::string>& transports)
    : strategy_is_settled_(settled.strategy), says_recompute_(!settled.recompute && config.recompute.any()) {
  add_layouts(config, settled, machine, host);
  if (!transports.empty()) take_transports(transports);
  for (LayoutChoice& layout : layouts_) add_dimensions(layout, config, settled, host);
}

void Space::add_layouts(const RunConfig& config, const Settled& settled, const Machine& machine, PluginHost& host) {
  const ModelSizes sizes = model_sizes(config, host);
  layers_ = sizes.layers;
  if (settled.strategy || config.ranks == 1) {
    const Parts parts = make_parts(config, host);
    const Layout layout = lay_out(parts.uses, config.ranks);
    layouts_.push_back({consist::text_of(config.strategies), stages_of(layout), layout.batch_ranks()});
    return;
  }
  const Strategies strategies(host);
  std::size_t division = 0;
  for (const Division& d : divisions(config, sizes, machine)) {
    const std::vector<std::vector<std::string>> terms{
        terms_of(strategies.within_layers, d.tensor), terms_of(strategies.of_sequence, d.context),
        terms_of(strategies.of_experts, d.experts), terms_of(strategies.of_stages, d.stages),
        data_terms(strategies, d.data, machine.ranks_per_node / d.tensor / d.context / d.experts, d.context * d.experts > 1)};
    for (const std::string& strategy : joined(terms)) {
      const std::vector<StrategyChoice> choices = parse_strategies(strategy);
      const auto kinds = (d.tensor > 1) + (d.context > 1) + (d.experts > 1) + (d.stages > 1) + 1;
      const bool cuts = static_cast<int>(choices.size()) > kinds || std::ranges::any_of(choices, [](const auto& c) { return !c.split.empty(); });
      layouts_.push_back({.strategy = strategy, .stages = d.stages, .data = d.data * d.experts, .division = division, .cuts_axis = cuts});
    }
    ++division;
  }
}

void Space::take_transports(const std::vector<std::string>& transports) {
  std::vector<LayoutChoice> with_transports;
  for (const std::string& transport : transports) {
    RunConfig named;
    parse_transports(transport, named);
    const std::size_t before = with_transports.size(), with_division = before == 0 ? 0 : with_transports.back().division + 1;
    for (LayoutChoice layout : layouts_) {
      const std::vector<StrategyChoice> strategies = parse_strategies(layout.strategy);
      const bool has_all = std::all_of(named.transport_of.begin(), named.transport_of.end(), [&](const auto& of_strategy) {
        return std::any_of(strategies.begin(), strategies.end(),
                           [&](const StrategyChoice& choice) { return choice.name == of_strategy.first; });
      });
      if (!has_all) continue;
      layout.transport = transport;
      layout.division += with_division;
      with_transports.push_back(std::move(layout));
    }
    if (with_transports.size() == before)
      throw UsageError("--transport lists '" + transport + "', which names a strategy that no layout of the search has");
  }
  layouts_ = std::move(with_transports);
}

void Space::add_dimensions(LayoutChoice& layout, const RunConfig& config, const Settled& settled, PluginHost& host) const {
  std::vector<Dimension>& all = layout.dimensions;
  const RunFacts facts{.stages = layout.stages, .layers = layers_};
  const std::int64_t sequences = config.global_batch / layout.data;
  if (!settled.batch && config.global_batch % layout.data == 0) {
    all.push_back({"batch", {}});
    for (const std::int64_t batch : micro_batches(sequences, layout.stages)) all.back().values.push_back(std::to_string(batch));
  }
  if (!settled.recompute) {
    all.push_back({"recompute", {"none", "swiglu,rms_norm", "full"}});
    if (config.recompute.first_layer == 0 && config.recompute.last_layer < 0 && layers_ >= 4) {
      Dimension layers{"recompute-layers", {""}, "recompute", {"swiglu,rms_norm", "full"}};
      for (const int quarters : {1, 2, 3}) layers.values.push_back("0-" + std::to_string(layers_ * quarters / 4 - 1));
      all.push_back(std::move(layers));
    }
  }
  if (!settled.offload && layers_ >= 2) all.push_back({offload_option, {"none", "all"}});
  for (const StrategyChoice& choice : parse_strategies(layout.strategy)) {
    if (config.ranks == 1) continue;
    const std::size_t before = all.size();
    add_options(all, "strategy", choice.name, config, facts, host);
    if (layout.stages == 1 || !makes_stages(host.make<ParallelStrategy>("strategy", choice.name, {})->axis())) continue;
    for (std::size_t d = before; d < all.size(); ++d) all[d].of_stages = true;
  }
  add_options(all, "precision", config.precision, config, facts, host);
  add_options(all, "optimizer", config.optimizer_plugin, config, facts, host);
}

std::vector<std::string> Space::values_of(std::size_t layout, const std::string& option) const {
  for (const Dimension& dimension : layouts_[layout].dimensions) {
    if (dimension.option == option) return dimension.values;
  }
  return {};
}

std::string Space::value_of(const Point& point, const std::string& option) const {
  const std::vector<Dimension>& dimensions = layouts_[point.layout].dimensions;
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    if (dimensions[d].option == option) return dimensions[d].values[point.values[d]];
  }
  return {};
}

Choices Space::choices_of(const Point& point) const {
  const LayoutChoice& layout = layouts_[point.layout];
  Choices choices;
  if (!strategy_is_settled_) choices.push_back({"strategy", layout.strategy});
  if (!layout.transport.empty()) choices.push_back({"transport", layout.transport});
  for (std::size_t d = 0; d < layout.dimensions.size(); ++d) {
    const Dimension& dimension = layout.dimensions[d];
    const bool said = dimension.option == "batch" || (dimension.option == "recompute" && says_recompute_);
    if (point.values[d] > 0 || said) choices.push_back({dimension.option, dimension.values[point.values[d]]});
  }
  return choices;
}

Point Space::first(std::size_t layout) const {
  return {layout, std::vector<std::uint8_t>(layouts_[layout].dimensions.size(), 0)};
}

bool Space::set(Point& point, const std::string& option, const std::string& value) const {
  const std::vector<Dimension>& dimensions = layouts_[point.layout].dimensions;
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    if (dimensions[d].option != option) continue;
    const auto found = std::find(dimensions[d].values.begin(), dimensions[d].values.end(), value);
    if (found == dimensions[d].values.end()) return false;
    point.values[d] = static_cast<std::uint8_t>(found - dimensions[d].values.begin());
    return true;
  }
  return false;
}

bool Space::has_effect(const Point& point, const Dimension& dimension) const {
  if (dimension.needs_option.empty()) return true;
  const std::string value = value_of(point, dimension.needs_option);
  return std::find(dimension.needs_values.begin(), dimension.needs_values.end(), value) != dimension.needs_values.end();
}

Point Space::without_idle_options(Point point) const {
  const std::vector<Dimension>& dimensions = layouts_[point.layout].dimensions;
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    if (!has_effect(point, dimensions[d])) point.values[d] = 0;
  }
  return point;
}

bool Space::changes_numerics(const Point& point) const {
  const std::vector<Dimension>& dimensions = layouts_[point.layout].dimensions;
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    if (dimensions[d].numerics && point.values[d] > 0) return true;
  }
  return false;
}

template <typename Take>
void Space::each_change(const Point& from, std::size_t begin, Numerics numerics, const Take& take) const {
  const std::vector<Dimension>& dimensions = layouts_[from.layout].dimensions;
  for (std::size_t d = begin; d < dimensions.size(); ++d) {
    if (numerics != Numerics::any && dimensions[d].numerics != (numerics == Numerics::changed)) continue;
    for (std::size_t v = 0; v < dimensions[d].values.size(); ++v) {
      if (v == from.values[d]) continue;
      Point changed = from;
      changed.values[d] = static_cast<std::uint8_t>(v);
      take(changed, d);
    }
  }
}

std::vector<Point> Space::with_stages(const Point& point) const {
  const std::vector<Dimension>& dimensions = layouts_[point.layout].dimensions;
  std::set<Point> found{point};
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    if (!dimensions[d].of_stages) continue;
    for (const Point& from : std::vector<Point>(found.begin(), found.end())) {
      for (std::size_t v = 0; v < dimensions[d].values.size(); ++v) {
        Point changed = from;
        changed.values[d] = static_cast<std::uint8_t>(v);
        found.insert(without_idle_options(changed));
      }
    }
  }
  return {found.begin(), found.end()};
}

std::vector<Point> Space::around(const Point& point, int options, Numerics numerics) const {
  std::set<Point> found;
  const std::vector<Dimension>& dimensions = layouts_[point.layout].dimensions;
  each_change(point, 0, numerics, [&](const Point& once, std::size_t d) {
    found.insert(without_idle_options(once));
    for (std::size_t dependent = 0; dependent < dimensions.size(); ++dependent) {
      if (dimensions[dependent].needs_option != dimensions[d].option || !has_effect(once, dimensions[dependent])) continue;
      for (std::size_t v = 0; v < dimensions[dependent].values.size(); ++v) {
        Point both = once;
        both.values[dependent] = static_cast<std::uint8_t>(v);
        found.insert(without_idle_options(both));
      }
    }
    if (options > 1)
      each_change(once, d + 1, numerics, [&](const Point& twice, std::size_t) { found.insert(without_idle_options(twice)); });
  });
  found.erase(point);
  return {found.begin(), found.end()};
}

std::vector<Point> Space::all(std::size_t layout, std::size_t most) const {
  std::set<Point> found;
  Point point = first(layout);
  const std::vector<Dimension>& dimensions = layouts_[layout].dimensions;
  for (std::size_t d = 0; found.size() < most;) {
    if (d == 0) found.insert(without_idle_options(point));
    if (d == dimensions.size()) break;
    if (++point.values[d] < dimensions[d].values.size()) {
      d = 0;
    } else {
      point.values[d++] = 0;
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace consist::launch
