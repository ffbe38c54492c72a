// Placements of tensors under tensor parallelism: linears sharded along their outputs or their inputs, the heads and words of
// each rank. Found from the graph of the forward program, not from names.
#pragma once

#include <cstdint>

#include "consist/program.h"

namespace consist::tensor_parallel {

struct PartitionSettings {
  int axis = 0;                   ///< of the mesh
  bool sequence_parallel = true;  ///< norms and residuals are sharded along the sequence
  std::int64_t logits_bytes = 0;  ///< most bytes of logits that a rank makes at once
};

/// Sets placements of parameters and of the embedding's output in the forward program of one micro-batch, and lets ranks share
/// heads and vocabulary: repeat_heads where there are more ranks than key/value heads, vocabulary_* in the place of lm_head_loss.
/// Throws UsageError naming the size that the ranks cannot share.
void partition(Program& forward, const PartitionSettings& settings);

}  // namespace consist::tensor_parallel
