// Weights in few bits: how those that are only read lie in memory, in blocks of codes with a scale each.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "consist/export.h"
#include "consist/shape.h"

namespace consist {

class Attributes;

/// A format of frozen weights. Each row is cut into blocks of `length` elements. A block is its scale, an f32 in the processor's
/// order of bytes, and its codes. A weight is code times scale, an f32 product.
struct CONSIST_API WeightBlocks {
  enum class Code : std::uint8_t {
    none,  ///< weights have a dtype, as all others
    /// 4-bit NormalFloat (Dettmers et al., 2023, "QLoRA"): numbers of nf4_values, two in a byte, the earlier one in its lower
    /// half. The scale is the block's largest magnitude.
    nf4,
    e4m3,  ///< 8-bit floats (consist/float8.h), one in a byte. The scale is the block's largest magnitude / 448
  };
  Code code = Code::none;
  std::int64_t length = 64;  ///< elements of a block

  bool any() const noexcept { return code != Code::none; }
  /// Bytes of a block.
  std::int64_t bytes() const noexcept;
  /// The shape of the bytes that hold weights of this shape, u8, and the inverse. The last dimension must be of whole blocks.
  Shape stored(Shape weights) const;
  Shape weights(Shape stored) const;
  bool operator==(const WeightBlocks&) const noexcept = default;
};

inline constexpr std::int64_t weight_scale_bytes = 4;

/// The numbers of 4-bit codes: quantiles of the normal distribution, the largest magnitude 1, and 0.
inline constexpr std::array<float, 16> nf4_values = {
    -1.0F,       -0.69619280F, -0.52507305F, -0.39491749F, -0.28444138F, -0.18477343F, -0.09105004F, 0.0F,
    0.07958030F, 0.16093020F,  0.24611230F,  0.33791524F,  0.44070983F,  0.56261700F,  0.72295684F,  1.0F};

/// The codes of weights to nearest, and back. `values` are whole blocks, `bytes` as many. THREADS: any.
CONSIST_API void encode(const WeightBlocks& blocks, std::span<const float> values, std::span<std::uint8_t> bytes);
CONSIST_API void decode(const WeightBlocks& blocks, std::span<const std::uint8_t> bytes, std::span<float> values);

/// "nf4:64"; "none".
CONSIST_API std::string text_of(const WeightBlocks& blocks);
/// The inverse; ":64" may be left out. Throws UsageError that begins with `said`, the option: none, nf4 or e4m3, and a length of
/// 1 to 4096.
CONSIST_API WeightBlocks parse_weight_blocks(const std::string& text, const std::string& said);
/// The format in attribute "blocks" of an instruction decode_weights. Throws ProgramError.
CONSIST_API WeightBlocks weight_blocks(const Attributes& attributes);

}  // namespace consist
