// Progress for people: one line that is redrawn on a terminal, plain lines otherwise.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "consist/export.h"
#include "core/record/step_report.h"

namespace consist {

/// Columns of the terminal that the descriptor writes to; 0 if that is no terminal, 80 if the terminal does not say.
CONSIST_API int terminal_columns(int descriptor = STDERR_FILENO);

/// `text` cut to what one line of `columns` shows without wrapping, by whole characters; all of it if `columns` is 0.
CONSIST_API std::string fit_line(const std::string& text, int columns);

/// "  preference_accuracy 0.75  reward_margin 0.0312"
CONSIST_API std::string metrics_text(const std::vector<OwnMetricValue>& metrics);

/// Text of a progress line about a step. Less important quantities are left out where `columns` (0: any number) are too few.
CONSIST_API std::string progress_text(const StepReport& report, std::int64_t steps, double tokens_per_second, int columns);

/// Writes to standard error, so that standard output stays for results. Used from one thread.
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
