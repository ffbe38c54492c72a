// The figures of a machine file that samples give: times of ops, and how the clock follows the load.
#pragma once

#include <vector>

#include "consist/cost.h"
#include "launch/calibrate/throttling_fit.h"

namespace consist::launch {

/// Means of the samples of one op, dtype and cost over all steps: their time and scratch, and the load at which they have that
/// time. `steps` as for fit_throttling().
std::vector<DeviceRates::OpTimes> op_times(const std::vector<std::vector<OpSample>>& steps, const ThrottlingFit& fit);

}  // namespace consist::launch
