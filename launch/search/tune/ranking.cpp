#include "launch/search/tune/ranking.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace consist::launch {
namespace {

/// Estimated bytes that may turn out to fit: over those that there are.
constexpr double memory_tolerance = 1.04;
/// Members of a family whose estimates differ by less than this are alike; two of them are simulated.
constexpr double alike = 0.003;
constexpr std::size_t simulated_alike = 2;

/// Where the time of a step goes by the estimate: a family, and who orders its micro-batches.
using Kind = std::pair<std::size_t, std::vector<std::string>>;

Kind kind_of(const Space& space, const Point& point) {
  std::vector<std::string> values;
  for (const char* option : {"batch", "recompute", layers_option, offload_option})
    values.push_back(space.value_of(point, option));
  return {point.layout, std::move(values)};
}

}  // namespace

Corrections::Corrections(const Space& space, const Findings& found) : space_(space) {
  std::size_t count = 0;
  found.each([&](const Point& point, const Known& known) {
    if (!known.quick || !known.is_simulated() || known.surest().seconds <= 0 || known.quick->seconds <= 0) return;
    const double ratio = (known.simulated ? known.simulated : known.whole)->seconds / known.quick->seconds;
    ++count;
    for (Mean* mean :
         {&of_layout_[layout_of(point)], &of_division_[division_of(point)], &of_schedule_[schedule_of(point)], &of_all_})
      mean->add(ratio);
    const double error = std::abs(1 / ratio - 1);
    mean_error_ += error;
    largest_error_ = std::max(largest_error_, error);
  });
  if (count > 0) mean_error_ /= static_cast<double>(count);
}

void Corrections::Mean::add(double ratio) {
  sum += ratio;
  squares += ratio * ratio;
  ++count;
}

double Corrections::Mean::spread(double least) const {
  if (count < 2) return least;
  const double mean = value(), variance = squares / static_cast<double>(count) - mean * mean;
  return std::max(least, std::sqrt(std::max(0.0, variance)) / mean);
}

Corrections::Relatives Corrections::relatives(const Point& point) const {
  // At least: options move estimates within a layout by little, strategies that split the batch by more, other divisions by most.
  constexpr double within_layout = 0.015, within_division = 0.03, of_all = 0.05;
  if (const auto found = of_layout_.find(layout_of(point)); found != of_layout_.end()) return {found->second, within_layout};
  if (const auto found = of_division_.find(division_of(point)); found != of_division_.end())
    return {found->second, within_division};
  if (const auto found = of_schedule_.find(schedule_of(point)); found != of_schedule_.end()) return {found->second, of_all};
  return {of_all_, of_all, true};
}

double Corrections::uncertainty(const Point& point) const {
  const Relatives known = relatives(point);
  return known.mean.spread(known.least_spread);
}

double Corrections::ratio(const Point& point) const {
  const Relatives known = relatives(point);
  return known.are_strangers ? std::min(1.0, known.mean.value()) : known.mean.value();  // it may be as fast as it is estimated
}

std::vector<Ranked> ranked(const Space& space, const Findings& found, const Corrections& corrections, double capacity,
                           Numerics numerics) {
  std::map<Kind, std::vector<double>> simulated;
  found.each([&](const Point& point, const Known& known) {
    if (known.quick && known.is_simulated()) simulated[kind_of(space, point)].push_back(found.score(*known.quick).first);
  });
  std::vector<Ranked> all;
  found.each([&](const Point& point, const Known& known) {
    if (known.refused || known.is_simulated() || !known.quick) return;
    if (numerics == Numerics::kept && space.changes_numerics(point)) return;
    if (capacity > 0 && static_cast<double>(known.quick->bytes) > memory_tolerance * capacity) return;
    const double own = found.score(*known.quick).first;
    if (const auto same = simulated.find(kind_of(space, point)); same != simulated.end()) {
      const auto near = std::ranges::count_if(same->second, [&](double other) { return own > (1 - alike) * other; });
      if (static_cast<std::size_t>(near) >= simulated_alike) return;
    }
    all.push_back({own * corrections.ratio(point) * (1 - corrections.uncertainty(point)), point});
  });
  std::sort(all.begin(), all.end(),
            [](const Ranked& a, const Ranked& b) { return a.score != b.score ? a.score < b.score : a.point < b.point; });
  return all;
}

void keep_the_surest(std::vector<Ranked>& ranked, const Findings& found, double capacity) {
  double worst = 1;
  found.each([&](const Point&, const Known& known) {
    if (!known.quick || !known.is_simulated()) return;
    worst = std::max(worst, static_cast<double>(known.surest().bytes) / static_cast<double>(known.quick->bytes));
  });
  const auto is_sure = [&](const Ranked& one) {
    return worst * static_cast<double>(found.find(one.point)->quick->bytes) <= capacity;
  };
  if (worst > 1 && capacity > 0 && std::ranges::any_of(ranked, is_sure))
    std::erase_if(ranked, [&](const Ranked& one) { return !is_sure(one); });
}

}  // namespace consist::launch
