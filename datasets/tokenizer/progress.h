// Progress messages of a long tokenization.
#pragma once

#include <chrono>
#include <cstdint>

namespace consist::tokenizer {

class TokenizingProgress {
 public:
  /// `all_bytes`: of all files.
  explicit TokenizingProgress(std::int64_t all_bytes) : all_bytes_(all_bytes) {}
  /// Logs a line if the last one is some seconds old.
  void say(std::int64_t bytes, std::int64_t tokens);

 private:
  std::int64_t all_bytes_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), logged_ = start_;
};

}  // namespace consist::tokenizer
