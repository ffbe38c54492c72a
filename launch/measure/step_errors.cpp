#include "launch/measure/step_errors.h"

#include <algorithm>
#include <cmath>

#include "launch/measure/statistics.h"

namespace consist::launch {
namespace {

struct Sum {
  std::string kind;
  double squares = 0;
  int steps = 0;
};

Sum& sum_of(std::vector<Sum>& sums, const std::string& kind) {
  const auto found = std::find_if(sums.begin(), sums.end(), [&](const Sum& sum) { return sum.kind == kind; });
  return found != sums.end() ? *found : sums.emplace_back(Sum{.kind = kind});
}

}  // namespace

StepErrors errors_of(std::span<const CheckedStep> steps) {
  std::vector<Sum> sums;
  for (const CheckedStep& step : steps) {
    const double error = std::max(step.predicted / step.measured, step.measured / step.predicted) - 1;
    for (const std::string& kind : step.kinds) {
      if (!counts_for(kind, step.kinds)) continue;
      Sum& sum = sum_of(sums, kind);
      sum.squares += error * error;
      ++sum.steps;
    }
  }
  StepErrors errors;
  for (const Sum& sum : sums) {
    if (sum.steps < least_measured_steps) continue;
    const double half = student_t(sum.steps) * std::sqrt(sum.squares / sum.steps);
    errors.push_back({sum.kind, {half, FigureSource::measured_here}, sum.steps});
  }
  return errors;
}

}  // namespace consist::launch
