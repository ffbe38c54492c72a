#include "launch/search/tune/findings.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace consist::launch {
namespace {

/// Configurations that differ by this share in speed are equal: the one with fewer options is shown.
constexpr double margin_of_simplicity = 0.001;
/// So many of the Pareto front are shown at most, each smaller than the one before by at least this share.
constexpr std::size_t most_of_front = 12;
constexpr double step_of_front = 0.05;
/// The same of energies, which differ less.
constexpr double energy_step_of_front = 0.01;
constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

Findings::Findings(const Space& space, Objective objective)
    : space_(space), objective_(objective), known_(space.layouts().size()) {}

void Findings::add(const Point& point, const Known& known) {
  Known& there = known_[point.layout][point];
  if (known.quick) there.quick = known.quick;
  if (known.simulated) there.simulated = known.simulated;
  if (known.whole) there.whole = known.whole;
  there.refused = there.refused || known.refused;
}

const Known* Findings::find(const Point& point) const {
  const auto found = known_[point.layout].find(point);
  return found == known_[point.layout].end() ? nullptr : &found->second;
}

void Findings::each(const std::function<void(const Point&, const Known&)>& visit) const {
  for (const auto& of_layout : known_) {
    for (const auto& [point, known] : of_layout) visit(point, known);
  }
}

std::pair<double, double> Findings::score(const Estimate& estimate) const {
  const auto bytes = static_cast<double>(estimate.bytes);
  switch (objective_) {
    case Objective::memory:
      return {bytes, estimate.seconds};
    case Objective::energy:
      return {estimate.joules, estimate.seconds};
    case Objective::tokens:
      break;
  }
  return {estimate.seconds, bytes};
}

double Findings::best_score(bool quick) const {
  double best = infinity;
  each([&](const Point&, const Known& known) {
    if (known.fits() && (quick || known.is_simulated())) best = std::min(best, score(known.surest()).first);
  });
  return best;
}

Points Findings::sorted(Points points) const {
  std::vector<std::pair<std::pair<double, double>, Point>> by_score;
  for (Point& point : points) {
    const auto of_point = score(point);
    by_score.emplace_back(of_point, std::move(point));
  }
  std::sort(by_score.begin(), by_score.end());
  points.clear();
  for (auto& [of_point, point] : by_score) points.push_back(std::move(point));
  return points;
}

Points Findings::best_of_layout(std::size_t layout) const {
  Points points;
  std::vector<std::pair<std::int64_t, Point>> too_large;
  for (const auto& [point, known] : known_[layout]) {
    if (known.fits())
      points.push_back(point);
    else if (!known.refused && known.is_known())
      too_large.emplace_back(known.surest().bytes, point);
  }
  points = sorted(std::move(points));
  std::sort(too_large.begin(), too_large.end());
  for (auto& [bytes, point] : too_large) points.push_back(std::move(point));
  return points;
}

Findings::Family Findings::family_of(const Point& point, bool by_memory) const {
  const double steps = std::log(static_cast<double>(find(point)->surest().bytes)) / std::log1p(step_of_front);
  return {point.layout,
          space_.value_of(point, "batch"),
          space_.value_of(point, "recompute"),
          space_.value_of(point, layers_option),
          space_.value_of(point, offload_option),
          by_memory ? static_cast<int>(steps) : 0};
}

Points Findings::best_of(const std::map<Family, Points>& families) const {
  // Estimates must have one basis: that of a shortened step, where steps are shortened.
  const auto of_estimate = [&](const Point& point) {
    const Known& known = *find(point);
    return score(known.simulated ? *known.simulated : *known.whole).first;
  };
  Points best;
  for (const auto& [family, points] : families) {
    double least = infinity;
    for (const Point& point : points) least = std::min(least, of_estimate(point));
    std::pair<std::pair<std::size_t, double>, const Point*> simplest{{std::numeric_limits<std::size_t>::max(), 0}, nullptr};
    for (const Point& point : points) {
      if (of_estimate(point) > (1 + margin_of_simplicity) * least) continue;
      simplest = std::min(simplest, {{space_.choices_of(point).size(), of_estimate(point)}, &point});
    }
    best.push_back(*simplest.second);
  }
  return sorted(std::move(best));
}

Points Findings::best_of_families(const std::function<bool(const Point&)>& takes) const {
  std::map<Family, Points> families;
  each([&](const Point& point, const Known& known) {
    if (known.fits() && known.is_simulated() && (!takes || takes(point))) families[family_of(point, false)].push_back(point);
  });
  return best_of(families);
}

Points Findings::front(bool by_energy) const {
  std::map<Family, Points> families;
  each([&](const Point& point, const Known& known) {
    if (known.fits() && known.is_simulated()) families[family_of(point, true)].push_back(point);
  });
  std::vector<std::pair<double, Point>> by_time;
  for (Point& point : best_of(families)) by_time.emplace_back(find(point)->surest().seconds, std::move(point));
  std::sort(by_time.begin(), by_time.end());
  const auto is_worth_it = [&](const Estimate& here, const Estimate& faster) {
    return static_cast<double>(here.bytes) <= (1 - step_of_front) * static_cast<double>(faster.bytes) ||
           (by_energy && here.joules <= (1 - energy_step_of_front) * faster.joules);
  };
  Points chosen;
  for (const auto& [seconds, point] : by_time) {
    if (chosen.size() == most_of_front) break;
    const Estimate& here = find(point)->surest();
    if (std::ranges::all_of(chosen, [&](const Point& other) { return is_worth_it(here, find(other)->surest()); }))
      chosen.push_back(point);
  }
  return chosen;
}

}  // namespace consist::launch
