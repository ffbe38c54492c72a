// Ring attention: keys and values are sent from rank to rank, beside attention to the present ones (Liu et al., 2023, "Ring
// Attention with Blockwise Transformers").
#pragma once

#include "consist/program.h"

namespace consist::context_parallel {

/// Replaces each attention with attribute "ring", and its gradient, by attention to one slice of the keys after the other along
/// mesh axis `axis`, while the next slice is in flight. In backward keys and values are sent around again; their gradients,
/// summed in f32, follow one slice later and return with one more shift.
void attend_around_ring(Program& micro_batch, int axis);

}  // namespace consist::context_parallel
