// Learning-rate schedules: linear warm-up, then constant, linear or cosine decay.
#pragma once

#include <cstdint>
#include <string>

#include "consist/export.h"

namespace consist {

struct LearningRate {
  enum class Decay { constant, linear, cosine };
  double peak = 3e-4;
  Decay decay = Decay::constant;
  std::int64_t warmup_steps = 0;
  std::int64_t steps = 1;       ///< where linear and cosine decay end
  double final_fraction = 0.1;  ///< of the peak, at the end of the decay

  /// The rate of step `step`, counted from 0: warm-up reaches the peak at step `warmup_steps` (the first step is
  /// peak/(warmup_steps+1)).
  CONSIST_API double at(std::int64_t step) const;
};

/// "constant", "linear" or "cosine"; throws UsageError otherwise.
CONSIST_API LearningRate::Decay decay_of(const std::string& name);

}  // namespace consist
