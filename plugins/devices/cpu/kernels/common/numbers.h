// Numbers in kernels: f32 and bf16 elements, arithmetic in f32.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "consist/bfloat16.h"
#include "consist/float8.h"
#include "consist/kernel.h"

namespace consist::cpu {

struct bf16 {
  std::uint16_t bits;
};

inline float load(float value) {
  return value;
}
inline float load(bf16 value) {
  return from_bfloat16(value.bits);
}

inline void store(float& to, float value) {
  to = value;
}
inline void store(bf16& to, float value) {
  to.bits = to_bfloat16(value);
}

template <const Float8Format& format>
struct float8 {
  std::uint8_t bits;
};
using e4m3 = float8<e4m3_format>;
using e5m2 = float8<e5m2_format>;

template <const Float8Format& format>
float load(float8<format> value) {
  return from_float8<format>(value.bits);
}
/// Saturates.
template <const Float8Format& format>
void store(float8<format>& to, float value) {
  to.bits = to_float8<format>(value);
}

template <typename T>
constexpr DType dtype_of_type() {
  return sizeof(T) == 4 ? DType::f32 : DType::bf16;
}

// Not to be compiled with -fassociative-math (or -ffast-math), which makes the rounding to n vanish.
#if defined(__FAST_MATH__)
#error "exp_fast does not survive -ffast-math"
#endif
/// e^x to within two units in the last place for x in [-87, 88]; 0 below, large above; vectorises. x = n ln 2 + r with |r| <= ln
/// 2 / 2; e^r by its Taylor polynomial of degree 7.
inline float exp_fast(float x) {
  const float clamped = x < -87.0F ? -87.0F : (x > 88.0F ? 88.0F : x);
  const float scaled = clamped * 1.44269504088896341F + 12582912.0F;  // 1.5·2^23: rounds n to an integer in the low bits
  const float n = scaled - 12582912.0F;
  const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;  // ln 2 in two parts
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const auto exponent = static_cast<std::uint32_t>(std::bit_cast<std::int32_t>(scaled) - 0x4b400000 + 127) << 23;
  const float result = p * std::bit_cast<float>(exponent);
  return x < -87.0F ? 0.0F : result;
}

/// tanh(x) to within four units in the last place; vectorises. Below 1/4 by its Taylor polynomial of degree 9, since the other
/// formula cancels there.
inline float tanh_fast(float x) {
  const float square = x * x;
  float p = 62.0F / 2835.0F;
  p = p * square - 17.0F / 315.0F;
  p = p * square + 2.0F / 15.0F;
  p = p * square - 1.0F / 3.0F;
  const float small = x + x * square * p;
  const float magnitude = x < 0.0F ? -x : x;
  const float large = 1.0F - 2.0F / (exp_fast(2.0F * magnitude) + 1.0F);
  return magnitude < 0.25F ? small : (x < 0.0F ? -large : large);
}

inline float sigmoid(float x) {
  return 1.0F / (1.0F + exp_fast(-x));
}

}  // namespace consist::cpu
