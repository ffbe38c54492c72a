// Steps with which a machine is measured.
#pragma once

#include <string>
#include <vector>

#include "launch/measure/step_samples.h"

namespace consist::launch {

struct CalibrationPlan {
  std::vector<CalibrationStep> sampled;  ///< op by op
  /// Steps of other sizes, each rank for itself and with strategies: the machine file's figures must give their time.
  std::vector<CalibrationStep> checked;
  CalibrationStep reduced, gathered;     ///< over all ranks: how far collectives and kernels slow each other down
  std::int64_t most_bytes = 0;           ///< of a collective's data
};

/// For devices of this kind (DeviceInfo::kind). Products, attention and what is bound by memory, from small models to large ones,
/// or of `models` alone, which are presets.
CalibrationPlan calibration_plan(const std::string& device_kind, const std::vector<std::string>& models);

}  // namespace consist::launch
