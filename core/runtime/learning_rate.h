// Learning-rate schedules: warm-up, then constant, linear or cosine decay.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "consist/export.h"

namespace consist {

struct LearningRate {
  enum class Decay { constant, linear, cosine };
  enum class Warmup { linear, log };
  /// Which of the schedule's points step k has. own: the k-th. deepspeed: DeepSpeed moves its schedules on after the optimizer's
  /// step, so that step k has point k-1, and the first two steps are alike; its cosine decay counts one ahead, which makes up for
  /// it. (Facts from deepspeed/runtime/lr_schedules.py and engine.py, DeepSpeed 0.19.6.)
  enum class Counting { own, deepspeed };

  double peak = 3e-4;
  Decay decay = Decay::constant;
  std::int64_t warmup_steps = 0;
  Warmup warmup = Warmup::linear;
  /// The rate at which warm-up begins; absent: one step up a line from 0, peak/(warmup_steps+1), if it is linear, 0 if
  /// logarithmic.
  std::optional<double> warmup_from;
  std::int64_t steps = 1;       ///< where linear and cosine decay end
  double final_fraction = 0.1;  ///< of the peak, at the end of the decay
  Counting counting = Counting::own;

  /// The rate of step `step`, counted from 0. Point k of a warm-up over w steps is `warmup_from` + (peak - `warmup_from`) *
  /// share, where share is k/w (linear: the peak is at point w) or log(k+1)/log(w) (log: the peak is at point w-1).
  CONSIST_API double at(std::int64_t step) const;
};

/// "constant", "linear" or "cosine"; throws UsageError otherwise.
CONSIST_API LearningRate::Decay decay_of(const std::string& name);
/// "linear" or "log"; throws UsageError otherwise.
CONSIST_API LearningRate::Warmup warmup_of(const std::string& name);
/// "own" or "deepspeed"; throws UsageError otherwise.
CONSIST_API LearningRate::Counting counting_of(const std::string& name);

CONSIST_API const char* name_of(LearningRate::Decay decay) noexcept;
CONSIST_API const char* name_of(LearningRate::Warmup warmup) noexcept;
CONSIST_API const char* name_of(LearningRate::Counting counting) noexcept;

}  // namespace consist
