#include "launch/measure/throttling_fit.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "consist/text.h"
#include "core/base/quantity_text.h"

namespace consist::launch {
namespace {

constexpr double first_lag = 0.025, least_lag = 1e-3, most_lag = 1;  // seconds
/// Less than the least, such as what rounding leaves of a difference, is none: a machine file has no such figure.
constexpr double first_demand = 0.3, least_demand = 1e-9, most_demand = 3, first_memory_bound = 0.3;
constexpr double little = 0.9;  // of the deviations that are left: above it nothing is explained

/// Indices of equal instructions, over all steps.
struct Group {
  std::vector<std::pair<std::size_t, std::size_t>> members;  // step, place in it
  double weight = 0;                                         // their seconds
};

std::vector<Group> groups_of(const std::vector<std::vector<OpSample>>& steps) {
  std::map<std::tuple<std::string, DType, double, double>, Group> by_cost;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    for (std::size_t n = 0; n < steps[s].size(); ++n) {
      const OpSample& sample = steps[s][n];
      if (sample.seconds <= 0) continue;
      Group& group = by_cost[{sample.op, sample.dtype, sample.flops, sample.bytes}];
      group.members.emplace_back(s, n);
      group.weight += sample.seconds;
    }
  }
  std::vector<Group> groups;
  for (auto& [cost, group] : by_cost) {
    if (group.members.size() > 1) groups.push_back(std::move(group));
  }
  return groups;
}

/// Mean square of the logarithms' deviations from the mean of their group, weighted by time.
double deviation(const std::vector<std::vector<OpSample>>& steps, const std::vector<Group>& groups, const ThrottlingFit& fit) {
  std::vector<std::vector<double>> loads;
  for (const std::vector<OpSample>& step : steps) loads.push_back(loads_of(step, fit));
  double sum = 0, weights = 0;
  for (const Group& group : groups) {
    double weight = 0, mean = 0, square = 0;
    for (const auto& [s, n] : group.members) {
      const OpSample& sample = steps[s][n];
      const double ratio = std::log(sample.seconds / (1 + fit.sensitivity_of(sample) * loads[s][n]));
      weight += sample.seconds;
      mean += sample.seconds * ratio;
      square += sample.seconds * ratio * ratio;
    }
    mean /= weight;
    sum += square - weight * mean * mean;
    weights += weight;
  }
  return weights > 0 ? std::max(0.0, sum / weights) : 0;
}

}  // namespace

double ThrottlingFit::demand_of(const OpSample& sample) const {
  const auto found = demand.find(sample.kind);
  return found == demand.end() ? 0 : found->second;
}

double ThrottlingFit::sensitivity_of(const OpSample& sample) const {
  return sample.flops > 0 ? 1 : memory_bound;
}

std::string text_of(const ThrottlingFit& fit) {
  if (fit.lag <= 0) return "the clock does not follow the load: equal instructions differ by " + percent_text(fit.before, 1);
  std::string text = "the clock follows the load in " + milliseconds_text(fit.lag) + ": equal instructions differ by " +
                     percent_text(fit.before, 1) + ", by " + percent_text(fit.unexplained, 1) + " without that; in the long run ";
  for (const auto& [kind, demand] : fit.demand) text += kind + " make it " + percent_text(demand) + " slower, ";
  return text + "of which memory-bound ops feel " + percent_text(fit.memory_bound);
}

std::vector<double> loads_of(const std::vector<OpSample>& step, const ThrottlingFit& fit) {
  std::vector<double> loads(step.size());
  if (fit.lag <= 0) return loads;
  double load = 0;
  constexpr int repeats = 2;  // the load at the start of a step is that at the end of the one before
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (std::size_t n = 0; n < step.size(); ++n) {
      if (step[n].seconds <= 0) continue;
      const double demand = fit.demand_of(step[n]), age = step[n].seconds / fit.lag;
      loads[n] = demand - (load - demand) * std::expm1(-age) / age;
      load = demand + (load - demand) * std::exp(-age);
    }
  }
  return loads;
}

ThrottlingFit fit_throttling(const std::vector<std::vector<OpSample>>& steps) {
  const std::vector<Group> groups = groups_of(steps);
  ThrottlingFit none;
  const double before = deviation(steps, groups, none);
  none.before = none.unexplained = std::sqrt(before);
  if (before <= 0) return none;
  ThrottlingFit best{.lag = first_lag, .memory_bound = first_memory_bound};
  for (const std::vector<OpSample>& step : steps) {
    for (const OpSample& sample : step) {
      if (!sample.kind.empty()) best.demand[sample.kind] = first_demand;
    }
  }
  double least = deviation(steps, groups, best);
  const auto try_out = [&](const ThrottlingFit& changed) {
    if (const double left = deviation(steps, groups, changed); left < least) {
      least = left;
      best = changed;
      return true;
    }
    return false;
  };
  // One figure after the other, up and down, by less and less.
  for (double by = 0.5; by > 0.01;) {
    bool better = false;
    for (const double factor : {1 + by, 1 / (1 + by)}) {
      ThrottlingFit changed = best;
      changed.lag = std::clamp(best.lag * factor, least_lag, most_lag);
      better = try_out(changed) || better;
    }
    for (const double more : {by * first_demand, -by * first_demand}) {
      ThrottlingFit changed = best;
      changed.memory_bound = std::clamp(best.memory_bound + more, 0.0, 1.0);
      better = try_out(changed) || better;
      for (const auto& [kind, demand] : std::map<std::string, double>(best.demand)) {
        changed = best;
        const double next = std::clamp(demand + more, 0.0, most_demand);
        changed.demand[kind] = next < least_demand ? 0 : next;
        better = try_out(changed) || better;
      }
    }
    if (!better) by /= 2;
  }
  if (std::sqrt(least) > little * none.before) return none;
  best.before = none.before;
  best.unexplained = std::sqrt(least);
  return best;
}

}  // namespace consist::launch
