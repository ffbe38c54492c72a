// Progress for people: one line that is redrawn on a terminal, plain lines otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/runtime/trainer.h"

namespace consist {

/// Writes to standard error, so that standard output stays for results.
class ProgressLine {
 public:
  ProgressLine(std::int64_t steps, bool quiet);
  void step(const StepReport& report);
  /// A line of its own; the progress line goes on below it.
  void note(const std::string& text);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t steps_;
  bool quiet_, terminal_, open_ = false;
  Clock::time_point last_{};
  double tokens_per_second_ = 0;  // smoothed
};

}  // namespace consist
