// Scalings: the elements of a quantized tensor that share a scale, and the number of scales.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "consist/error.h"
#include "consist/program.h"

namespace consist {

/// Attribute "scaling" of the op quantize; without it, one scale per tensor.
enum class Scaling : std::uint8_t {
  tensor,    ///< one scale, from the tensor's own largest magnitude
  delayed,   ///< one scale, from the largest magnitudes of the steps before
  row,       ///< one per row: all elements that a product sums over share it
  block_1d,  ///< one per 128 neighbours of a row
  block_2d,  ///< one per 128 rows and 128 columns
};

inline constexpr std::pair<std::string_view, Scaling> scaling_names[] = {{"tensor", Scaling::tensor},
                                                                         {"delayed", Scaling::delayed},
                                                                         {"row", Scaling::row},
                                                                         {"block_1d", Scaling::block_1d},
                                                                         {"block_2d", Scaling::block_2d}};

constexpr std::string_view name_of(Scaling scaling) noexcept {
  return scaling_names[static_cast<std::size_t>(scaling)].first;
}

/// True if the transposed copy of a tensor has scales of its own.
constexpr bool has_transposed_scales(Scaling scaling) noexcept {
  return scaling != Scaling::tensor && scaling != Scaling::delayed;
}

/// The scaling of an instruction `quantize`. ERRORS: ProgramError for an unknown name.
inline Scaling scaling_of(const Attributes& attributes) {
  if (!attributes.has("scaling")) return Scaling::tensor;
  const std::string_view text = attributes.string("scaling");
  for (const auto& [name, scaling] : scaling_names) {
    if (name == text) return scaling;
  }
  throw ProgramError("attribute 'scaling' is '" + std::string(text) +
                     "'; quantize knows tensor, delayed, row, block_1d and block_2d");
}

/// The scalings of the operands of an 8-bit product. Its attribute "scaling" is the value of --fp8.scaling: with block scaling
/// weights have a scale per 128 x 128 block, activations and gradients one per 128 elements of a row.
struct OperandScalings {
  Scaling a = Scaling::tensor, b = Scaling::tensor;
};

inline OperandScalings operand_scalings(std::string_view op, const Attributes& attributes) {
  if (!attributes.has("scaling")) return {};
  const std::string_view text = attributes.string("scaling");
  if (text == "row") return {Scaling::row, Scaling::row};
  if (text == "block") return {Scaling::block_1d, op == "fp8_linear_weight_grad" ? Scaling::block_1d : Scaling::block_2d};
  if (text == "delayed") return {};
  throw ProgramError("attribute 'scaling' is '" + std::string(text) + "'; products know row, block and delayed");
}

/// Side of a block: elements of a row that share a scale, and rows of a two-dimensional block.
inline constexpr std::int64_t scale_block = 128;

constexpr std::int64_t scale_blocks(std::int64_t elements) noexcept {
  return (elements + scale_block - 1) / scale_block;
}
/// Elements from one row of scales of two-dimensional blocks to the next: cuBLASLt needs multiples of 4.
constexpr std::int64_t square_stride(std::int64_t elements) noexcept {
  return (scale_blocks(elements) + 3) / 4 * 4;
}

}  // namespace consist
