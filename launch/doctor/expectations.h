// Counts that the user expects of a machine: --expect gpus=8.
#pragma once

#include <string>

#include "launch/doctor/check.h"

namespace consist::doctor {

struct Expectation {
  std::string thing;
  int count = 0;
};

/// The things that can be counted: "gpus, efa, ...".
inline constexpr const char* countable = "gpus, efa, rdma, processors";

/// Throws UsageError for a text that is not THING=COUNT, and for a thing that is not counted.
Expectation read_expectation(const std::string& text);

Finding compare_with(const Expectation& expected, const Facts& facts);

}  // namespace consist::doctor
