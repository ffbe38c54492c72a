// Attention of a sequence in zigzag order on GPUs: calls of kernels that whole sequences have, and copies around
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "consist/program.h"

namespace consist {

struct AttentionCall {
  double flops = 0, bytes = 0;  ///< as Cost has them
  /// Bytes that a call with as many queries as keys, the mean of these, would read and write: workspaces grow with both.
  double square_bytes = 0;
};

/// Calls of one rank, and the memory beside them.
struct AttentionCalls {
  std::vector<AttentionCall> calls;
  std::int64_t scratch = 0;  ///< bytes beside the workspace of the calls
  double moved = 0;          ///< bytes that are read and written around the calls
};

/// Attention in zigzag order or to a part of the keys, or their gradients: calls of ranks whose work differs, the first, one in
/// the middle and the last; empty for all other instructions.
std::vector<AttentionCalls> attention_calls(const Program& program, const Instruction& i);

}  // namespace consist
