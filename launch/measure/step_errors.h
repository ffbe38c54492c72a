// The errors of a machine file by kind of step, from steps that were measured and predicted.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/cost/step_errors.h"

namespace consist::launch {

struct CheckedStep {
  std::vector<std::string> kinds;  ///< kinds_of() its program
  double predicted = 0, measured = 0;
};

/// For every kind with least_measured_steps or more: 95% of errors that are normal around 0 lie within their root mean square
/// times Student's t. A step's error is how much longer the longer one of the two is. Steps count as
/// counts_for() says. "measured here".
StepErrors errors_of(std::span<const CheckedStep> steps);

}  // namespace consist::launch
