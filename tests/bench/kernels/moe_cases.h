// The ops of a layer of experts at the sizes of a model: Qwen3-30B-A3B.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/kernels/bench.h"

namespace consist::bench {

inline const std::string moe_model = "qwen3-30b-a3b";

/// Grouped products beside one dense product of as many operations: with as many rows for each expert, and with counts as
/// tokens' choices make them.
std::vector<Case> moe_cases(std::int64_t batch, std::int64_t sequence);

}  // namespace consist::bench
