// Shapes of scales and of transposed copies.
#pragma once

#include "consist/op.h"
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

/// A quantized operand of a product, and the tensor that it was made from.
struct QuantizedSource {
  TensorId tensor = no_tensor;
  Quantized made;
};
/// The source of operand `value` of an instruction of `op`. Throws ProgramError if quantize did not make it: it has no gradient
/// then.
QuantizedSource quantized_source(const Op& op, const Differentiator& d, TensorId value);

/// How the gradient of the result of `forward`, a product of quantized tensors, is quantized; `weight`: the name of what it is
/// multiplied with.
QuantizeSettings gradient_settings(const Instruction& forward, const std::string& weight);

/// The gradient of the result `y` of a product, placed as y is: whole where y is a sum of ranks' summands.
TensorId gradient_as_placed(Differentiator& d, TensorId y);

}  // namespace consist::ops
