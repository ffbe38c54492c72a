// The figures of a machine file that samples give: times of ops, and how the clock follows the load.
#pragma once

#include <vector>

#include "consist/cost.h"
#include "launch/measure/throttling_fit.h"

namespace consist::launch {

/// Means of the samples of one op, dtype and cost over all steps: their time and scratch, and the load at which they have that
/// time. `steps` as for fit_throttling().
std::vector<DeviceRates::OpTimes> op_times(const std::vector<std::vector<OpSample>>& steps, const ThrottlingFit& fit);

/// Seconds by which measuring an instruction makes it longer: that of which a step of `samples` is longer than the same step
/// without measuring, which takes `seconds`. At least 0.
double measuring_seconds(const std::vector<OpSample>& samples, double seconds);
/// Takes that off every sample; at least half of each stays.
void take_off(std::vector<OpSample>& samples, double measuring);

}  // namespace consist::launch
