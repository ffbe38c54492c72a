// Shapes of scales and of transposed copies.
#pragma once

#include "consist/op.h"
#include "consist/quantize.h"

namespace consist::ops {

/// The scales of a tensor of shape `x`, [batch, sequence, channels] or [rows, columns], and those of its transposed copy. Blocks
/// count from the start of a rank's slice, and a rank uses as many of them as its slice has.
Shape scales(Scaling scaling, const Shape& x);
Shape transposed_scales(Scaling scaling, const Shape& x);

/// The shape with the last dimension first: [batch, sequence, channels] → [channels, batch, sequence]; and the placement of a
/// tensor of `rank` dimensions then.
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

/// The quantization of the gradient of the result of `forward`, a product of quantized tensors; `weight`: the name of the tensor
/// that it is multiplied with.
QuantizeSettings gradient_settings(const Instruction& forward, const std::string& weight);

/// The gradient of the result `y` of a product, placed as y is: replicated where y is partial.
TensorId gradient_as_placed(Differentiator& d, TensorId y);

}  // namespace consist::ops
