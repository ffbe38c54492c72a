#include "datasets/tokenizer/progress.h"

#include <cstdio>

#include "consist/log.h"

namespace consist::tokenizer {

void TokenizingProgress::say(std::int64_t bytes, std::int64_t tokens) {
  constexpr auto log_every = std::chrono::seconds(5);
  const auto now = std::chrono::steady_clock::now();
  if (now - logged_ < log_every) return;
  logged_ = now;
  char text[160];
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::snprintf(text, sizeof text, "tokenizing: %.1f of %.1f MB, %.2f M tokens, %.2f M tokens/s",
                static_cast<double>(bytes) / 1e6, static_cast<double>(all_bytes_) / 1e6, static_cast<double>(tokens) / 1e6,
                static_cast<double>(tokens) / 1e6 / seconds);
  log::info(text);
}

}  // namespace consist::tokenizer
