// Attention that hides more than what comes later: packed documents and windows.
#pragma once

#include <vector>

#include "tests/bench/kernels/bench.h"

namespace consist::bench {

struct AttentionSizes {
  std::int64_t batch, sequence, heads, kv_heads, dim;
};

/// Forward and backward over sequences that are one document, over documents of a quarter and of an eighth of a sequence, and
/// over windows of a quarter. FLOPs are those of what queries see.
std::vector<Case> attention_cases(const AttentionSizes& sizes, DType dtype);

}  // namespace consist::bench
