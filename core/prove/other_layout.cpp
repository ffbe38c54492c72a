#include "core/prove/other_layout.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "consist/error.h"
#include "core/plan/known_strategies.h"
#include "core/prove/one_rank.h"

namespace consist::prove {
namespace {

using interpreter::Outcome;
using interpreter::RankPrograms;
using interpreter::SavedValues;
using Strategies = std::vector<StrategyChoice>;

/// The strategies of the run, each with the number of its ranks.
Strategies sized(const Plan& plan) {
  Strategies strategies;
  for (const StrategyChoice& choice : plan.config().strategies) {
    int size = 1;
    for (const StrategyUse& use : plan.layout().active) {
      if (use.name != choice.name) continue;
      for (const int axis : use.axes) size *= plan.layout().mesh.axis(axis).size;
    }
    strategies.push_back({choice.name, size});
  }
  return strategies;
}

/// The strategies that there are: data-parallel ones, those that divide most first, and the others.
struct Families {
  std::vector<std::string> data, others;

  explicit Families(PluginHost& host) {
    std::vector<KnownStrategy> known = known_strategies(host);
    std::ranges::stable_sort(known, {}, [](const KnownStrategy& strategy) { return strategy.axis.distance; });
    for (const KnownStrategy& strategy : known) (strategy.is_data_parallel() ? data : others).push_back(strategy.name);
  }

  bool is_data_parallel(const std::string& name) const { return std::ranges::find(data, name) != data.end(); }

  /// Stands in for a data-parallel strategy: the next one, so that states that are divided are divided otherwise.
  const std::string& instead_of(const std::string& name) const {
    const auto next = std::ranges::find(data, name) + 1;
    return next == data.end() ? data.front() : *next;
  }
};

Strategies changed(Strategies strategies, const Families& families, bool halve, bool exchange) {
  for (StrategyChoice& choice : strategies) {
    if (families.is_data_parallel(choice.name)) {
      if (exchange) choice.name = families.instead_of(choice.name);
    } else if (halve && choice.size >= 4 && choice.size % 2 == 0) {
      choice.size /= 2;
    }
  }
  return strategies;
}

int ranks_of(const Strategies& strategies) {
  int ranks = 1;
  for (const StrategyChoice& choice : strategies) ranks *= choice.size;
  return ranks;
}

/// The same steps: as many sequences in as many micro-batches. Options of strategies that are left out go with them.
RunConfig with_strategies(const Plan& plan, Strategies strategies) {
  RunConfig config = plan.config();
  config.ranks = ranks_of(strategies);
  config.strategies = std::move(strategies);
  config.batch = 0;
  config.transport = automatic_transport;
  config.transport_of.clear();
  config.chosen_transport.clear();
  for (const std::string& stray : stray_owners(config, plan.host())) config.plugin_options.erase(stray);
  return config;
}

/// Adds to `wrong` how the steps behind a checkpoint differ from those of one rank. Returns their outcome, if there is one.
std::optional<Outcome> resumed(const std::function<Outcome()>& steps, const Outcome& expected, double within,
                               const std::string& where, std::vector<std::string>& wrong) {
  try {
    Outcome found = steps();
    for (const Difference& d : differences(found, expected, within)) wrong.push_back(where + d.text);
    return found;
  } catch (const ProgramError& error) {
    wrong.push_back(where + error.what());
    return std::nullopt;
  }
}

}  // namespace

std::string layout_text(const RunConfig& config) {
  return text_of(config.strategies) + " on " + std::to_string(config.ranks) + " ranks";
}

std::vector<RunConfig> other_layouts(const Plan& plan) {
  const Strategies own = sized(plan);
  const RunConfig& config = plan.config();
  const int most = std::max(config.ranks, 2);
  const std::int64_t sequences = config.global_batch / config.accumulation;
  int data = most;
  while (sequences % data != 0) --data;
  const Families families(plan.host());
  std::vector<Strategies> tried{changed(own, families, true, true), changed(own, families, true, false),
                                changed(own, families, false, true)};
  for (const std::string& name : families.data) tried.push_back({{name, data}});
  for (const std::string& name : families.others) tried.push_back({{name, 2}});
  std::vector<Strategies> kept{own};
  std::vector<RunConfig> others;
  for (const Strategies& strategies : tried) {
    if (ranks_of(strategies) < 2 || std::ranges::find(kept, strategies) != kept.end()) continue;
    kept.push_back(strategies);
    others.push_back(with_strategies(plan, strategies));
  }
  return others;
}

std::vector<std::string> there_and_back(const Checkpoint& checkpoint, ProgramsWithRoom& there) {
  const interpreter::RunOptions& options = checkpoint.options;
  const Outcome& expected = checkpoint.expected;
  const std::string other = layout_text(there->config);
  interpreter::RunOptions a_step = options;
  a_step.steps = checkpoint.saved.steps + 1;
  const Outcome one_step = interpreter::run_on(checkpoint.one, expected.saved, a_step);
  const auto step_there = [&](const SavedValues& from, const std::string& where, std::vector<std::string>& wrong) {
    const auto run_step = [&](const RankPrograms& programs) { return interpreter::run_on(programs, from, a_step); };
    return resumed([&] { return there.run(run_step); }, one_step, checkpoint.within, where, wrong);
  };
  std::vector<std::string> wrong, by_itself;
  const std::optional<Outcome> found = step_there(checkpoint.saved, "resumed on " + other + ", ", wrong);
  if (wrong.empty()) {
    resumed([&] { return interpreter::run_on(checkpoint.here, found->saved, options); }, behind(expected, found->saved.steps),
            checkpoint.within, "saved on " + other + " and resumed on this layout, ", wrong);
    return wrong;
  }
  step_there(expected.saved, "", by_itself);
  if (!by_itself.empty())
    wrong.push_back(other + " differs from one rank in resuming one rank's checkpoint, too: " + by_itself.front());
  return wrong;
}

}  // namespace consist::prove
