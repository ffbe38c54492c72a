#include "launch/search/tune/space.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "consist/error.h"
#include "core/compile/reduced_step.h"
#include "core/config/option_value.h"
#include "core/config/run_facts.h"
#include "core/plan/found_model.h"
#include "core/plan/parts.h"
#include "launch/search/tune/layouts.h"

namespace consist::launch {
namespace {

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

/// All, the first quarters of them, and the other numbers.
Dimension recomputed_layers(std::int64_t layers) {
  constexpr std::int64_t most = 128;  // numbers
  Dimension dimension{layers_option, {""}, "recompute", {"swiglu,rms_norm", "full"}};
  const auto add = [&](std::int64_t count) {
    std::string value = "0-" + std::to_string(count - 1);
    if (std::ranges::find(dimension.values, value) == dimension.values.end()) dimension.values.push_back(std::move(value));
  };
  for (const int quarters : {1, 2, 3}) add(layers * quarters / 4);
  dimension.coarse = dimension.values.size();
  for (std::int64_t count = 1; count < layers; count += (layers + most - 1) / most) add(count);
  return dimension;
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
  layouts_ = layouts_of(config, sizes, machine, host);
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
      all.push_back(recomputed_layers(layers_));
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
    for (std::size_t v = 0; v < dimensions[d].looked_at(); ++v) {
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
      for (std::size_t v = 0; v < dimensions[dependent].looked_at(); ++v) {
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

std::vector<Point> Space::recomputing_less(const Point& point) const {
  const std::vector<Dimension>& dimensions = layouts_[point.layout].dimensions;
  const auto layers = std::ranges::find(dimensions, layers_option, &Dimension::option);
  if (layers == dimensions.end() || !has_effect(point, *layers)) return {};
  const auto count_of = [&](const std::string& value) { return value.empty() ? layers_ : 1 + std::stoll(value.substr(2)); };
  const std::int64_t here = count_of(value_of(point, layers_option));
  std::map<std::int64_t, Point> by_count;
  for (const std::string& value : layers->values) {
    Point fewer = point;
    if (count_of(value) < here && set(fewer, layers_option, value)) by_count.emplace(count_of(value), std::move(fewer));
  }
  std::vector<Point> points;
  for (auto& [count, fewer] : by_count) points.push_back(std::move(fewer));
  return points;
}

std::vector<Point> Space::all(std::size_t layout, std::size_t most) const {
  std::set<Point> found;
  Point point = first(layout);
  const std::vector<Dimension>& dimensions = layouts_[layout].dimensions;
  for (std::size_t d = 0; found.size() < most;) {
    if (d == 0) found.insert(without_idle_options(point));
    if (d == dimensions.size()) break;
    if (++point.values[d] < dimensions[d].looked_at()) {
      d = 0;
    } else {
      point.values[d++] = 0;
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace consist::launch
