#include "launch/compare_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/runtime/text.h"

namespace consist::launch {

double student_t(int freedom) {
  constexpr std::array<double, 30> quantiles{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                             2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                             2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  if (freedom <= static_cast<int>(quantiles.size())) return quantiles[static_cast<std::size_t>(std::max(freedom, 1) - 1)];
  return 1.960 + 2.46 / freedom;  // within 0.1% from there on
}

Interval interval_of(std::span<const double> values) {
  std::vector<double> logarithms;
  for (double value : values) {
    if (value > 0) logarithms.push_back(std::log(value));
  }
  Interval interval{.count = static_cast<int>(logarithms.size())};
  if (logarithms.empty()) return interval;
  const auto count = static_cast<double>(logarithms.size());
  double mean = 0, squares = 0;
  for (double value : logarithms) mean += value / count;
  for (double value : logarithms) squares += (value - mean) * (value - mean);
  interval.mean = std::exp(mean);
  if (interval.count < 2) return interval;
  const double half = student_t(interval.count - 1) * std::sqrt(squares / (count - 1) / count);
  interval.low = std::exp(mean - half);
  interval.high = std::exp(mean + half);
  return interval;
}

bool apart(const Interval& a, const Interval& b) {
  return a.known() && b.known() && (a.low > b.high || b.low > a.high);
}

std::string spread_text(const Interval& interval) {
  if (!interval.known()) return "-";
  const double percent = 100 * std::max(interval.high / interval.mean - 1, 1 - interval.low / interval.mean);
  return "±" + (percent > 999 ? std::string(">999") : fixed_text(percent, percent < 9.95 ? 1 : 0)) + "%";
}

}  // namespace consist::launch
