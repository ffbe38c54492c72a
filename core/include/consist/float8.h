// 8-bit floats (OCP FP8) on the host. Without branches, so that loops over them vectorise; not for -ffast-math, which would undo
// the rounding.
#pragma once

#include <bit>
#include <cstdint>

#include "consist/dtype.h"

namespace consist {

/// e4m3: exponent bias 7, 3 bits of mantissa, subnormals in steps of 2^-9, no infinities, NaN 0x7f. e5m2: bias 15, 2 bits, steps
/// of 2^-16, NaN 0x7f.
struct Float8Format {
  int mantissa_bits;
  int bias;
  std::uint8_t largest;  ///< code of the largest finite number
};
inline constexpr Float8Format e4m3_format{3, 7, 0x7e};   // 448
inline constexpr Float8Format e5m2_format{2, 15, 0x7b};  // 57344

constexpr const Float8Format& float8_format(DType type) noexcept {
  return type == DType::e4m3 ? e4m3_format : e5m2_format;
}

/// The code of `value`: to nearest, ties to even; beyond the largest number (infinities too) that number with its sign; NaN 0x7f.
template <const Float8Format& format>
constexpr std::uint8_t to_float8(float value) noexcept {
  constexpr int dropped = 23 - format.mantissa_bits;
  constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - format.bias) << format.mantissa_bits;
  constexpr std::uint32_t largest = (format.largest + rebias) << dropped;  // as the bits of a float
  constexpr std::uint32_t smallest_normal = static_cast<std::uint32_t>(128 - format.bias) << 23;
  // Adding it leaves the number of subnormal steps, rounded, in the low bits of the sum.
  constexpr auto steps = static_cast<std::uint32_t>(151 - format.bias - format.mantissa_bits) << 23;

  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24 & 0x80U, magnitude = bits & 0x7fffffffU;
  const std::uint32_t clamped = magnitude < largest ? magnitude : largest;
  const std::uint32_t normal = ((clamped + ((1U << (dropped - 1)) - 1) + (clamped >> dropped & 1U)) >> dropped) - rebias;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(clamped) + std::bit_cast<float>(steps)) - steps;
  const std::uint32_t code = (clamped < smallest_normal ? subnormal : normal) | sign;
  return static_cast<std::uint8_t>(magnitude > 0x7f800000U ? 0x7fU : code);
}

/// The number of a code, exactly.
template <const Float8Format& format>
constexpr float from_float8(std::uint8_t code) noexcept {
  const std::uint32_t magnitude = code & 0x7fU, sign = (code & 0x80U) << 24;
  // The fields of a float with the wrong bias, which a product with a power of two corrects, of subnormals too.
  const float scaled = std::bit_cast<float>(magnitude << (23 - format.mantissa_bits)) *
                       std::bit_cast<float>(static_cast<std::uint32_t>(254 - format.bias) << 23);
  const std::uint32_t bits = magnitude > format.largest ? 0x7fc00000U : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(bits | sign);
}

/// The power of two by which a tensor whose largest magnitude is `amax` is multiplied before it becomes `type`: the largest that
/// keeps it in range, within [2^-126, 2^126]; 1 for amax 0. NaN where amax is not finite.
constexpr float float8_scale(float amax, DType type) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(amax);
  if (bits == 0) return 1.0F;
  if (bits >= 0x7f800000U) return std::bit_cast<float>(0x7fc00000U);
  const int exponent = static_cast<int>(bits >> 23);        // biased; 0 of subnormals, whose scale is the largest anyway
  constexpr std::uint32_t mantissa_of_largest = 0x600000U;  // both formats' largest number is 1.75 times a power of two
  const int room = (type == DType::e4m3 ? 8 : 15) - ((bits & 0x7fffffU) > mantissa_of_largest ? 1 : 0);
  const int scale = room - (exponent - 127) + 127;
  return std::bit_cast<float>(static_cast<std::uint32_t>(scale < 1 ? 1 : (scale > 253 ? 253 : scale)) << 23);
}

}  // namespace consist
