// Ring attention: keys and values travel from rank to rank, beside attention to those that are here (Liu et al., 2023, "Ring Attention
// with Blockwise Transformers").
#pragma once

#include "consist/program.h"

namespace consist::context_parallel {

/// Puts attention to each part of the keys, and what brings the next part here meanwhile, in the place of each attention with attribute
/// "ring" and of its gradient, along mesh axis `axis`. In backward keys and values go round again; their gradients, summed in f32, follow
/// one part behind and come home with one shift more.
void attend_around_ring(Program& micro_batch, int axis);

}  // namespace consist::context_parallel
