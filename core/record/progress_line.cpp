#include "core/record/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "consist/text.h"

namespace consist {

int terminal_columns(int descriptor) {
  if (isatty(descriptor) != 1) return 0;
  winsize size{};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

std::string fit_line(const std::string& text, int columns) {
  if (columns <= 0) return text;
  // A character in the last column makes some terminals wrap.
  const int room = columns - 1;
  int shown = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins_character = (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U;
    if (begins_character && ++shown > room) return text.substr(0, i);
  }
  return text;
}

namespace {

std::string printed(const char* format, double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

}  // namespace

std::string metrics_text(const std::vector<OwnMetricValue>& metrics) {
  std::string text;
  for (const OwnMetricValue& metric : metrics) text += "  " + metric.name + printed(" %.4g", metric.value);
  return text;
}

std::string progress_text(const StepReport& report, std::int64_t steps, double tokens_per_second, int columns) {
  const double left = static_cast<double>(steps - report.step) * static_cast<double>(report.tokens) / tokens_per_second;
  struct Field {
    std::string text;
    int importance;  // the least important one goes first
  };
  std::array<Field, 9> fields{{{"step " + std::to_string(report.step) + "/" + std::to_string(steps), 5},
                               {printed("  loss %.4f", report.loss), 4},
                               {metrics_text(report.metrics), 0},
                               {report.auxiliary_loss ? printed("  aux_loss %.4f", *report.auxiliary_loss) : std::string(), 0},
                               {report.expert_choices.empty() ? std::string() : printed("  load %.2f", report.expert_load), 0},
                               {printed("  grad_norm %.3f", report.grad_norm), 1},
                               {printed("  lr %.2e", report.learning_rate), 0},
                               {"  " + si_text(tokens_per_second) + " tokens/s", 2},
                               {"  " + duration_text(left) + " left", 3}}};
  for (int left_out = -1;; ++left_out) {
    std::string line;
    for (const Field& field : fields) {
      if (field.importance > left_out) line += field.text;
    }
    if (fit_line(line, columns).size() == line.size() || left_out == 4) return fit_line(line, columns);
  }
}

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
  const std::string line = progress_text(report, steps_, tokens_per_second_, terminal_columns());
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    open_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

void ProgressLine::note(const std::string& text) {
  if (quiet_) return;
  finish();
  std::fprintf(stderr, "%s\n", printable(text).c_str());
}

void ProgressLine::finish() {
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

}  // namespace consist
