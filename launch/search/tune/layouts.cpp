#include "launch/search/tune/layouts.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/compile/reduced_step.h"
#include "core/plan/known_strategies.h"

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
  /// Pairs of those, the inner one first: it shards parameters, the outer one replicates the shards (hybrid sharding).
  std::vector<std::pair<std::string, std::string>> inner_and_outer;

  explicit Strategies(PluginHost& host) {
    std::vector<AxisRequest> requests;  // of those that split the batch
    for (const KnownStrategy& strategy : known_strategies(host)) {
      const auto& [name, request] = strategy;
      if (strategy.is_data_parallel()) {
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

/// True if a sequence is long enough for `context` ranks to have a shard each, whose tokens `tensor` ranks share again.
bool can_divide(std::int64_t sequence, int context, int tensor) {
  constexpr std::int64_t shortest = 2048;  // tokens of a part: of fewer, products and attention leave GPUs idle
  return context == 1 || (sequence % (2 * context * tensor) == 0 && sequence / context >= shortest);
}

/// The ranks of each kind of strategy.
struct RankDivision {
  int tensor, stages, context, experts, data;
};

std::vector<RankDivision> divisions(const RunConfig& config, const ModelSizes& sizes, const Machine& machine) {
  std::vector<RankDivision> all;
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

}  // namespace

std::vector<LayoutChoice> layouts_of(const RunConfig& config, const ModelSizes& sizes, const Machine& machine, PluginHost& host) {
  const Strategies strategies(host);
  std::vector<LayoutChoice> layouts;
  std::size_t division = 0;
  for (const RankDivision& d : divisions(config, sizes, machine)) {
    const std::vector<std::vector<std::string>> terms{
        terms_of(strategies.within_layers, d.tensor), terms_of(strategies.of_sequence, d.context),
        terms_of(strategies.of_experts, d.experts), terms_of(strategies.of_stages, d.stages),
        data_terms(strategies, d.data, machine.ranks_per_node / d.tensor / d.context / d.experts, d.context * d.experts > 1)};
    for (const std::string& strategy : joined(terms)) {
      const std::vector<StrategyChoice> choices = parse_strategies(strategy);
      const auto kinds = (d.tensor > 1) + (d.context > 1) + (d.experts > 1) + (d.stages > 1) + 1;
      const bool cuts = static_cast<int>(choices.size()) > kinds ||
                        std::ranges::any_of(choices, [](const auto& c) { return !c.split.empty(); });
      layouts.push_back(
          {.strategy = strategy, .stages = d.stages, .data = d.data * d.experts, .division = division, .cuts_axis = cuts});
    }
    ++division;
  }
  return layouts;
}

}  // namespace consist::launch
