// Time of a step by instruction and by op (--profile).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Collects the times of a program's instructions over steps. The first step is left out: libraries set themselves up then.
class CONSIST_API Profile {
 public:
  /// Times of every instruction in one step, by index, as Executable::launch_times() gives them; an empty one counts nothing.
  void add(std::span<const LaunchTime> times);
  std::int64_t steps() const noexcept { return steps_; }
  /// Mean time per step of the instruction of this index; 0 before the first step that counts.
  double seconds(std::size_t instruction) const {
    return instruction < sums_.size() && steps_ > 0 ? sums_[instruction] / static_cast<double>(steps_) : 0;
  }
  /// Mean time per step that the compute queue worked on the optimizer, or on all else.
  double compute_seconds(const Program& program, bool optimizer) const;

  /// {"steps", "instructions": [{"op", "output", "queue", "phase", "layer", "micro_batch", "seconds"}]}; seconds are means. Times
  /// of instructions on different queues overlap: their sum may exceed the step's time.
  std::string json(const Program& program) const;
  /// A table: per queue and op the number of instructions, time per step, its share of the queue's, FLOP/s and B/s by the ops'
  /// costs.
  std::string text(const Program& program) const;

 private:
  std::vector<double> sums_;
  std::int64_t seen_ = 0, steps_ = 0;
};

}  // namespace consist
