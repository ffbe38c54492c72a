// Ulysses: heads of whole sequences for attention.
#pragma once

#include "consist/program.h"

namespace consist::context_parallel {

/// Puts what brings the operands of attention from parts of the sequence over mesh axis `axis` to parts of the heads in front of it, and
/// what brings its result back behind it. Channels are split into as many parts as there are ranks, in memory, so that each rank's
/// part travels in one piece. REQUIRES: all ranks can have equally many heads.
void exchange_around_attention(Program& forward, int axis);

}  // namespace consist::context_parallel
