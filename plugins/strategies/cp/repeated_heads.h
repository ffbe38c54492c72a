// More ranks than key/value heads: heads that several ranks need are made as often as they are needed.
#pragma once

#include <cstdint>
#include <vector>

#include "consist/program.h"

namespace consist::context_parallel {

struct RepeatedHeads {
  TensorId activation = no_tensor;  ///< keys or values [batch, sequence, channels], before attention
  std::int64_t heads = 0;           ///< after the repetition: a multiple of its present number
  std::int64_t head_dim = 0;
};

/// Repeats heads of the weights and biases of the linears that make these activations: each rank's tokens then have every head as
/// often as ranks need it. Types follow when shardings are propagated. ERRORS: UsageError for an activation that no linear with
/// parameters makes, but for ops of one activation in between (rope).
void repeat_heads(Program& forward, const std::vector<RepeatedHeads>& wanted);

}  // namespace consist::context_parallel
