// How GPUs compute attention of a sequence in zigzag order: as calls of kernels that whole sequences have, and copies around
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "consist/program.h"

namespace consist {

struct AttentionCall {
  double flops = 0, bytes = 0;  ///< as Cost has them
  /// What a call would read and write whose queries and keys are as many as these on average: workspaces grow with both.
  double square_bytes = 0;
};

/// What one rank does.
struct AttentionCalls {
  std::vector<AttentionCall> calls;
  std::int64_t scratch = 0;  ///< bytes beside the workspace of the calls
  double moved = 0;          ///< bytes that are read and written around the calls
};

/// Of an attention in zigzag order, or to a part of the keys, or their gradients: what ranks do that differ, the first, one in
/// the middle and the last; empty for all other instructions.
std::vector<AttentionCalls> attention_calls(const Program& program, const Instruction& i);

}  // namespace consist
