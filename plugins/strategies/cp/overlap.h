// Overlap in forward: queries are not needed before keys and values have arrived.
#pragma once

#include "consist/program.h"

namespace consist::context_parallel {

/// Moves what gathers of activations over mesh axis `axis` do not wait for, the product and rotation of queries above all, behind
/// them: it is computed while keys and values travel. Queries then have a product of their own. Only instructions of the gather's layer, phase
/// and micro-batch move, and only on the compute queue; values stay as they are.
void compute_beside_gathers(Program& step, int axis);

}  // namespace consist::context_parallel
