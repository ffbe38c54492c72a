// A short run of two ranks, as users start it.
#pragma once

#include <string>
#include <vector>

#include "tests/child_process.h"

namespace consist::test {

/// `consist train` of llama-tiny on two ranks, one synthetic sequence of 32 tokens each, with `more` behind it.
inline ChildResult train_tiny(const std::vector<std::string>& more) {
  std::vector<std::string> command{CONSIST_BINARY_DIR "/bin/consist",
                                   "train",
                                   "--model",
                                   "llama-tiny",
                                   "--dataset",
                                   "synthetic",
                                   "--sequence",
                                   "32",
                                   "--batch",
                                   "1",
                                   "--ranks",
                                   "2"};
  command.insert(command.end(), more.begin(), more.end());
  return run_child(command);
}

}  // namespace consist::test
