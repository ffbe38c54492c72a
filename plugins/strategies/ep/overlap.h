// Slices of the batch whose tokens are in flight while others compute.
#pragma once

#include "consist/program.h"

namespace consist::expert_parallel {

/// Cuts forward into `parts` slices of the batch; 0: into two if the batch can be cut and, by the cost model, messages over
/// `axes` cost more than smaller kernels and the sums of gradients in `gradient` over the slices do. Throws UsageError if the
/// batch cannot be cut so.
void cut_batch(Program& forward, AxisSet axes, int parts, DType gradient);

}  // namespace consist::expert_parallel
