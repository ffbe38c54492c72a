// Parts of the batch whose tokens travel while others compute.
#pragma once

#include "consist/program.h"

namespace consist::expert_parallel {

/// Cuts forward into `parts` along the batch; 0: into two if the batch can be cut and, by the cost model, messages over `axes`
/// cost more than smaller kernels and the sums of gradients in `gradient` over the parts do. Throws UsageError if parts were
/// asked that cannot be.
void cut_batch(Program& forward, AxisSet axes, int parts, DType gradient);

}  // namespace consist::expert_parallel
