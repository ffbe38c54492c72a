// What the schedules with a warm-up and one decay share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "consist/options.h"

namespace consist::schedules {

/// Which point of a schedule a step has.
class Counting {
 public:
  explicit Counting(const Options& options) : late_(options.text("counting") == "deepspeed") {}

  /// own: as many as steps are done. deepspeed: one fewer, since DeepSpeed moves its schedules on after the optimizer's step, so
  /// that the first two steps are alike. (deepspeed/runtime/engine.py, DeepSpeed 0.19.6)
  std::int64_t point(std::int64_t done) const noexcept { return late_ ? std::max<std::int64_t>(done - 1, 0) : done; }
  /// Points by which DeepSpeed's cosine decay counts ahead, which makes up for it. (deepspeed/runtime/lr_schedules.py)
  std::int64_t ahead() const noexcept { return late_ ? 1 : 0; }

 private:
  bool late_;
};

/// The share of a decay that is done `point` points into `length`: 0..1.
inline double done_of(std::int64_t point, std::int64_t length) noexcept {
  return std::clamp(static_cast<double>(point) / static_cast<double>(std::max<std::int64_t>(length, 1)), 0.0, 1.0);
}

/// `peak` times what is left, 0..1, above the share `last` of the peak at which a decay ends.
inline double decayed(double peak, double last, double left) noexcept {
  return peak * (last + (1.0 - last) * left);
}

}  // namespace consist::schedules

#define CONSIST_COUNTING_OPTION                                                                                           \
  {                                                                                                                       \
    "counting", consist::OptionKind::choice, "own", "deepspeed: a step later, as its schedulers move on after each step", \
        "own|deepspeed"                                                                                                   \
  }
