// Placements of tensors under context parallelism.
#pragma once

#include "consist/program.h"

namespace consist::context_parallel {

enum class Attention {
  ulysses,  ///< each rank computes some heads of the unsharded sequence: all_to_all of queries, keys, values and results
  gather,   ///< each rank computes all heads of its queries: keys and values are gathered; the sequence is in zigzag order
  ring,     ///< the same, but each rank keeps its own keys and values, which are sent from rank to rank
};

/// Shards inputs and tables of positions along the sequence over mesh axis `axis`, and sets what `attention` needs: placements
/// of its operands, or the order of the sequence. ERRORS: UsageError for sequences and heads that the ranks cannot share.
void partition(Program& forward, int axis, Attention attention);

}  // namespace consist::context_parallel
