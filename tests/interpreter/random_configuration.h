// Configurations drawn at random: models of odd sizes, strategies in any composition, and their options.
#pragma once

#include <random>

#include "tests/interpreter/configuration.h"

namespace consist::interpreter {

struct RandomConfiguration {
  ModelChoice model;
  std::vector<std::string> words;
};

/// May be one that the compiler refuses.
RandomConfiguration draw(std::mt19937_64& random);

}  // namespace consist::interpreter
