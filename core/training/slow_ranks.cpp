#include "core/training/slow_ranks.h"

#include <algorithm>

namespace consist {
namespace {

double median_of_others(std::span<const double> speeds, std::size_t rank) {
  std::vector<double> others;
  for (std::size_t r = 0; r < speeds.size(); ++r) {
    if (r != rank) others.push_back(speeds[r]);
  }
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end());
  return *middle;
}

}  // namespace

std::vector<SlowRank> SlowRanks::add(std::span<const double> speeds) {
  std::vector<SlowRank> found;
  checks_.resize(speeds.size());
  for (std::size_t rank = 0; rank < speeds.size() && speeds.size() > 1; ++rank) {
    const double more = median_of_others(speeds, rank) / speeds[rank] - 1;
    if (more <= limit_) {
      checks_[rank] = 0;
    } else if (++checks_[rank] == in_a_row) {
      found.push_back({static_cast<int>(rank), more});
    }
  }
  std::ranges::sort(found, std::ranges::greater(), &SlowRank::longer);
  return found;
}

}  // namespace consist
