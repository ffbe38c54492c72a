// Measured figures put into the prediction of a step: what each that differs costs it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "launch/doctor/measured_checks.h"

namespace consist::doctor {

/// Predicted seconds of the step on a machine.
using StepSeconds = std::function<double(const MachineRates& machine)>;

/// Predicts the step by the base machine, by each check's machines and by all that was measured. Each check gets its cost, says
/// it, and is wrong where it costs more than `limit`, a fraction. `job`: the configuration in short. The result of the whole step
/// is added to the checks.
JudgedStep judge_step(const launch::ShortFigures& figures, std::vector<MeasuredCheck>& checks, const std::string& job,
                      double limit, const StepSeconds& seconds);

/// The prediction of a plan's step. The plan outlives it.
StepSeconds step_seconds(const Plan& plan);

}  // namespace consist::doctor
