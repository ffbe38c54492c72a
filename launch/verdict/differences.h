// Conditions and choices in which two sides differ, and what they make incomparable.
#pragma once

#include <string>
#include <vector>

#include "launch/verdict/side.h"

namespace consist::launch {

struct Difference {
  /// "model", "sizes", "tokens per step", "data", "training", "machine", "versions", "clock", "experts", "measurement", or
  /// "option": a choice of the configuration, which is what is judged.
  std::string kind;
  std::string name, a, b;
  std::vector<std::string> prevents;  ///< quantities that cannot be judged beside it: "speed", "memory", "loss", "energy"
};

/// Those that prevent a judgement first, then conditions, then options.
std::vector<Difference> differences_between(const Side& a, const Side& b);

/// Names of the differences that prevent the judgement of a quantity, joined; empty: none does.
std::string prevented_by(const std::vector<Difference>& differences, const std::string& quantity);

}  // namespace consist::launch
