#include "core/compile/layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "consist/error.h"

namespace consist {

int Layout::batch_ranks() const {
  return mesh.size_of(batch_axes);
}

int Layout::batch_index(int rank) const {
  return mesh.coordinate(rank, batch_axes);
}

const StrategyUse& Layout::strategy_of(int axis) const {
  const auto use = std::find_if(active.begin(), active.end(), [&](const StrategyUse& u) { return u.axes.contains(axis); });
  if (axis < 0 || use == active.end()) throw ProgramError("no strategy works on mesh axis " + std::to_string(axis));
  return *use;
}

namespace {

/// Divides the `use.size` ranks that a strategy spans over its axes, the outermost first.
std::vector<int> sizes_of(const StrategyUse& use, const AxisRequest& request) {
  std::vector<int> sizes = use.split;
  if (sizes.empty()) sizes = {use.size};
  const auto count = static_cast<int>(sizes.size());
  if (count < request.least_axes || count > request.most_axes) {
    const std::string needed = request.least_axes == request.most_axes
                                   ? std::to_string(request.most_axes)
                                   : std::to_string(request.least_axes) + " to " + std::to_string(request.most_axes);
    throw UsageError("strategy '" + use.name + "' works on " + needed + (needed == "1" ? " axis" : " axes") + ", but is given " +
                     std::to_string(count) +
                     (request.most_axes > 1 ? "; write --strategy " + use.name + "=2x4 for two axes"
                                            : "; write --strategy " + use.name + "=N"));
  }
  int known = 1;
  for (const int size : sizes) known *= std::max(1, size);
  if (use.size % known != 0) {
    throw UsageError("strategy '" + use.name + "' is left " + std::to_string(use.size) + " ranks, which its axes of " +
                     std::to_string(known) + " do not divide");
  }
  for (int& size : sizes) {
    if (size <= 0) size = use.size / known;
  }
  return sizes;
}

/// Sets the sizes that were left out. Throws UsageError where they do not fit.
void take_ranks(std::vector<StrategyUse>& strategies, int ranks) {
  int fixed = 1;
  StrategyUse* rest = nullptr;
  for (StrategyUse& use : strategies) {
    if (use.size > 0) {
      fixed *= use.size;
      continue;
    }
    if (!use.strategy->axis().takes_rest) {
      throw UsageError("strategy '" + use.name + "' needs a number of ranks: write --strategy " + use.name + "=N");
    }
    if (rest != nullptr) {
      throw UsageError("both '" + rest->name + "' and '" + use.name +
                       "' would take the remaining ranks; give one of them a size (" + use.name + "=N)");
    }
    rest = &use;
  }
  if (ranks % fixed != 0 || (rest == nullptr && ranks != fixed)) {
    throw UsageError("the strategies' sizes multiply to " + std::to_string(fixed) + ", but the job has " + std::to_string(ranks) +
                     " ranks; " + (rest == nullptr ? "they must be equal" : "the one must divide the other"));
  }
  if (rest != nullptr) rest->size = ranks / fixed;
}

/// Strategies of one axis name lie one within the other, by their distance.
void refuse_same_axis(const std::vector<StrategyUse>& outermost_first) {
  for (std::size_t k = 0; k < outermost_first.size(); ++k) {
    const AxisRequest one = outermost_first[k].strategy->axis();
    for (std::size_t j = k + 1; j < outermost_first.size(); ++j) {
      const AxisRequest other = outermost_first[j].strategy->axis();
      if (one.name != other.name || one.distance != other.distance) continue;
      throw UsageError("strategies '" + outermost_first[k].name + "' and '" + outermost_first[j].name +
                       "' both want the mesh axis '" + one.name +
                       "', and neither can lie within the other: leave one of them out; shards within replicas are one that "
                       "divides parameters and one that only sums gradients, such as zero2=4+ddp=2");
    }
  }
}

/// By AxisRequest::turn, then in the order of the mesh; but of those of one axis name and turn the inner ones first, whose results
/// the outer ones take.
std::vector<std::size_t> schedule_order_of(const std::vector<StrategyUse>& active) {
  std::vector<std::size_t> order(active.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto request = [&](std::size_t k) { return active[k].strategy->axis(); };
  std::ranges::stable_sort(order, {}, [&](std::size_t k) { return request(k).turn; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      const AxisRequest one = request(order[i]), other = request(order[j]);
      if (one.name == other.name && one.turn == other.turn && order[i] < order[j]) std::swap(order[i], order[j]);
    }
  }
  return order;
}

}  // namespace

Layout lay_out(const std::vector<StrategyUse>& strategies, int ranks) {
  std::vector<StrategyUse> ordered = strategies;
  take_ranks(ordered, ranks);
  // Among axes of one distance, those along which ranks have tokens of their own are outermost: what others divide further nests
  // in their parts. Of these, sequences of their own come before parts of sequences.
  std::ranges::stable_sort(ordered, std::ranges::greater(), [](const StrategyUse& use) {
    const AxisRequest request = use.strategy->axis();
    return std::tuple(request.distance, request.shares_parameters, request.shares_parameters && request.splits_batch);
  });
  refuse_same_axis(ordered);
  std::map<std::string, std::size_t> axes_of_name, made_of_name;
  for (const StrategyUse& use : ordered) axes_of_name[use.strategy->axis().name] += std::max(std::size_t{1}, use.split.size());

  Layout layout;
  std::vector<MeshAxis> axes;
  AxisSet shared;
  for (StrategyUse& use : ordered) {
    const AxisRequest request = use.strategy->axis();
    for (const int size : sizes_of(use, request)) {
      const std::size_t number = made_of_name[request.name]++;
      if (size == 1) continue;
      const auto index = static_cast<int>(axes.size());
      if (request.splits_batch) layout.batch_axes |= index;
      if (request.shares_parameters) shared |= index;
      use.axes |= index;
      axes.push_back({axes_of_name[request.name] == 1 ? request.name : request.name + "." + std::to_string(number), size});
    }
  }
  for (StrategyUse& use : ordered) {
    use.works_on = use.strategy->axis().takes_shared ? use.axes | shared : use.axes;
    if (!use.works_on.empty() || use.strategy->axis().on_one_rank == OnOneRank::is_called) layout.active.push_back(use);
  }
  for (const bool shares : {true, false}) {
    for (std::size_t k = 0; k < layout.active.size(); ++k) {
      if (layout.active[k].strategy->axis().shares_parameters == shares) layout.partition_order.push_back(k);
    }
  }
  layout.schedule_order = schedule_order_of(layout.active);
  layout.mesh = Mesh(std::move(axes));
  return layout;
}

}  // namespace consist
