#include "core/compile/reduced_step.h"

#include <algorithm>

namespace consist {

bool makes_stages(const AxisRequest& request) noexcept {
  return request.distance >= 2 && !request.splits_batch;
}

namespace {

/// Without the indices of `order` that are gone, the others as they are numbered then.
std::vector<std::size_t> renumbered(const std::vector<std::size_t>& order, const std::vector<bool>& stays) {
  std::vector<std::size_t> result;
  for (const std::size_t k : order) {
    if (stays[k]) result.push_back(static_cast<std::size_t>(std::count(stays.begin(), stays.begin() + static_cast<std::ptrdiff_t>(k), true)));
  }
  return result;
}

}  // namespace

Layout without_stages(const Layout& layout) {
  std::vector<bool> stays;
  for (const StrategyUse& use : layout.active) stays.push_back(!makes_stages(use.strategy->axis()));
  Layout result = layout;
  std::erase_if(result.active, [](const StrategyUse& use) { return makes_stages(use.strategy->axis()); });
  result.partition_order = renumbered(layout.partition_order, stays);
  result.schedule_order = renumbered(layout.schedule_order, stays);
  return result;
}

}  // namespace consist
