// Overlap in forward: queries are not needed before keys and values have arrived.
#pragma once

#include "consist/program.h"

namespace consist::context_parallel {

/// Moves instructions that gathers of activations over mesh axis `axis` do not need behind them, so that they run while keys and
/// values are in flight: in forward the product and rotation of queries, which then have a product of their own; in backward all
/// of the layer before attention, and the reductions of its gradients. Only instructions of the gather's layer, phase and
/// micro-batch move; values and the order of collectives on each queue stay as they are.
void compute_beside_gathers(Program& step, int axis);

}  // namespace consist::context_parallel
