// Quantization in programs: one instruction makes a tensor's copy in 8-bit floats, the transposed copy and the scales of both.
#pragma once

#include <cstdint>
#include <string>

#include "consist/builder.h"
#include "consist/export.h"
#include "consist/float8_scaling.h"

namespace consist {

/// A quantized tensor, as the outputs of its quantize instruction. A descale is what a code is multiplied by.
struct Quantized {
  TensorId value = no_tensor, transposed = no_tensor;
  TensorId descale = no_tensor, transposed_descale = no_tensor;  ///< the same tensor where both copies have one scale
};

/// The history of delayed scaling: the state "<of>.amax_history", f32[1 + length]: the largest of the others, then the largest
/// magnitudes of the last `length` steps, newest first, 0 where there was none (core/passes/record_amaxes.h).
struct AmaxHistory {
  std::string of;
  std::int64_t length = 0;
};

struct QuantizeSettings {
  DType dtype = DType::e4m3;
  Scaling scaling = Scaling::tensor;
  AmaxHistory history;         ///< of delayed scaling
  bool once_per_step = false;   ///< of weights: micro-batches share it
  bool before_gathers = false;  ///< slices may be quantized before they are gathered (core/passes/gather_quantized.h)
  /// True if a transposed copy is made, else Quantized::transposed is no_tensor. False only with one scale per tensor.
  bool transposed = true;
};

/// Emits the instructions that quantize `tensor`.
CONSIST_API Quantized quantize(Builder& builder, TensorId tensor, const QuantizeSettings& settings);

/// The outputs of an instruction quantize, by name.
CONSIST_API Quantized quantized(const Instruction& quantize);

}  // namespace consist
