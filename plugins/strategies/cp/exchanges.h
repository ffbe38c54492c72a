// Ulysses: attention on some heads of unsharded sequences (Jacobs et al., 2023).
#pragma once

#include "consist/program.h"

namespace consist::context_parallel {

/// Reshards the operands of attention from slices of the sequence over mesh axis `axis` to slices of the heads before it, and its
/// result back after it. Channels are cut into as many slices as there are ranks, in memory, so that each rank's slice is sent as
/// one message. REQUIRES: all ranks can have equally many heads.
void exchange_around_attention(Program& forward, int axis);

}  // namespace consist::context_parallel
