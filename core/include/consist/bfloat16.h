// bfloat16 on the host: the upper half of an f32. Without branches, so that loops over them vectorise.
#pragma once

#include <bit>
#include <cstdint>

namespace consist {

/// Rounds to nearest, ties to even; beyond the range to infinity. NaN stays NaN (quiet), with its sign.
constexpr std::uint16_t to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16, nan = bits >> 16 | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

/// Exact.
constexpr float from_bfloat16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace consist
