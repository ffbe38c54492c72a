// A run whose steps take about a millisecond, for tests of what happens between them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace consist::test {

/// The words of `consist train`: a tiny model with fresh weights, synthetic tokens, one thread of the processor per rank.
inline std::vector<std::string> short_steps(const std::string& archive, std::size_t steps, const std::vector<std::string>& more) {
  std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist",
                                 "train",
                                 "--device=cpu",
                                 "--cpu.threads=1",
                                 "--dataset=synthetic",
                                 "--sequence=32",
                                 "--batch=2",
                                 "--from-scratch",
                                 "--model=" CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied",
                                 "--steps=" + std::to_string(steps),
                                 "--archive=" + archive};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace consist::test
