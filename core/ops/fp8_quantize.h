// How programs quantize a tensor: one instruction makes its copy in 8-bit floats, the transposed copy and the scales of both.
#pragma once

#include <cstdint>
#include <string>

#include "consist/builder.h"
#include "consist/export.h"
#include "core/program/float8_scaling.h"

namespace consist {

/// A quantized tensor, as the outputs of its quantize instruction. A descale is what a code is multiplied by.
struct Quantized {
  TensorId value = no_tensor, transposed = no_tensor;
  TensorId descale = no_tensor, transposed_descale = no_tensor;  ///< the same tensor where both copies have one scale
};

/// Of delayed scaling: the state "<of>.amax_history", f32[1 + length]: the largest of the others, then the largest magnitudes of the
/// last `length` steps, newest first, 0 where there was none (core/passes/record_amaxes.h).
struct AmaxHistory {
  std::string of;
  std::int64_t length = 0;
};

struct QuantizeSettings {
  DType dtype = DType::e4m3;
  Scaling scaling = Scaling::tensor;
  AmaxHistory history;         ///< of delayed scaling
  bool once_per_step = false;   ///< of weights: micro-batches share it
  bool before_gathers = false;  ///< what was gathered for it may be quantized in parts before (core/passes/gather_quantized.h)
};

/// Emits what quantizes `tensor`.
CONSIST_API Quantized quantize(Builder& builder, TensorId tensor, const QuantizeSettings& settings);

/// The parts that an instruction quantize makes.
Quantized quantized(const Instruction& quantize);

namespace ops {

/// The scales of a tensor of shape `x`, [batch, sequence, channels] or [rows, columns], and those of its transposed copy. Blocks
/// count from where a rank's part begins, and a rank uses as many of them as its part has.
Shape scales(Scaling scaling, const Shape& x);
Shape transposed_scales(Scaling scaling, const Shape& x);

/// The last dimension first: [batch, sequence, channels] → [channels, batch, sequence]; and where a tensor of `rank` dimensions
/// then lies.
Shape transposed(const Shape& shape);
Placement transposed(Placement placement, int rank);

constexpr bool is_float8(DType type) noexcept {
  return type == DType::e4m3 || type == DType::e5m2;
}

}  // namespace ops
}  // namespace consist
