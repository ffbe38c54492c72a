// IEEE 754 binary16 on the host.
#pragma once

#include <bit>
#include <cstdint>

namespace consist {

/// Exact: every binary16 value is an f32 value. NaN stays NaN.
constexpr float from_float16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7fffU;
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  if (magnitude >= 0x400U) return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
  // Below the normal numbers the value is magnitude * 2^-24, which f32 holds as a normal number or zero.
  const float value = static_cast<float>(magnitude) * 0x1p-24F;
  return sign != 0 ? -value : value;
}

/// Rounds to nearest, ties to even; what is beyond the range (65504) becomes infinite, NaN stays NaN (quiet).
constexpr std::uint16_t to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U, magnitude = bits & 0x7fffffffU;
  std::uint32_t half = 0x7c00U;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U | (magnitude >> 13 & 0x3ffU);
  } else if (magnitude < 0x38800000U) {
    // Below 2^-14: beside 0.5, whose last place is 2^-24, f32 rounds as the subnormal numbers are to be rounded.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  } else if (magnitude < 0x477ff000U) {  // which lies halfway between 65504 and the next power of two
    const std::uint32_t rebased = magnitude - (112U << 23);
    half = (rebased + 0xfffU + (rebased >> 13 & 1U)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace consist
