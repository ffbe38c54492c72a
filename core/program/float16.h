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

}  // namespace consist
