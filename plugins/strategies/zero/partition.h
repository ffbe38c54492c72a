// Where tensors live under ZeRO.
#pragma once

#include "consist/program.h"

namespace consist::zero {

/// Batches are split over `axis`, parameters lie flat along it; gathers, reductions and the placement of gradients and optimizer
/// states follow.
void partition(Program& forward, int axis);

}  // namespace consist::zero
