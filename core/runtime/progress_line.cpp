#include "core/runtime/progress_line.h"

#include <unistd.h>

#include <cstdio>

#include "core/runtime/text.h"

namespace consist {

ProgressLine::ProgressLine(std::int64_t steps, bool quiet)
    : steps_(steps), quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1) {}

void ProgressLine::step(const StepReport& report) {
  if (quiet_) return;
  const double rate = static_cast<double>(report.tokens) / report.seconds;
  tokens_per_second_ = tokens_per_second_ == 0 ? rate : 0.9 * tokens_per_second_ + 0.1 * rate;
  const Clock::time_point now = Clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(2000);
  const bool ends = report.step == 1 || report.step == steps_;
  if (!ends && now - last_ < pause) return;
  last_ = now;
  const double left = static_cast<double>(steps_ - report.step) * static_cast<double>(report.tokens) / tokens_per_second_;
  char line[200];
  std::snprintf(line, sizeof line, "step %lld/%lld  loss %.4f  grad_norm %.3f  lr %.2e  %s tokens/s  %s left",
                static_cast<long long>(report.step), static_cast<long long>(steps_), report.loss, report.grad_norm,
                report.learning_rate, si_text(tokens_per_second_).c_str(), duration_text(left).c_str());
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", line);
    open_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line);
  }
  std::fflush(stderr);
}

void ProgressLine::note(const std::string& text) {
  if (quiet_) return;
  finish();
  std::fprintf(stderr, "%s\n", text.c_str());
}

void ProgressLine::finish() {
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

}  // namespace consist
