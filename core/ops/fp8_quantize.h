// Shapes of scales and of transposed copies.
#pragma once

#include "consist/quantize.h"

namespace consist::ops {

/// The scales of a tensor of shape `x`, [batch, sequence, channels] or [rows, columns], and those of its transposed copy. Blocks
/// count from where a rank's part begins, and a rank uses as many of them as its part has.
Shape scales(Scaling scaling, const Shape& x);
Shape transposed_scales(Scaling scaling, const Shape& x);

/// The last dimension first: [batch, sequence, channels] → [channels, batch, sequence]; and where a tensor of `rank` dimensions
/// then lies.
Shape transposed(const Shape& shape);
Placement transposed(Placement placement, int rank);

}  // namespace consist::ops
