#include "core/collectives/sum.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

#include "consist/error.h"

namespace consist {
namespace {

using SumF32 = void (*)(float*, const float*, const float*, std::size_t);
using SumBf16 = void (*)(std::uint16_t*, const std::uint16_t*, const std::uint16_t*, std::size_t);

// The loops are plain so that the compiler vectorises them; every variant computes the same bits. `to` may be `a` or `b` exactly,
// which a vector loop handles, so the compiler is told to assume no other overlap.
[[gnu::always_inline]] inline void sum_f32_loop(float* to, const float* a, const float* b, std::size_t count) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
}

/// The f32 bits of a sum, with the nearest bf16 in the upper half; the lower half is of no meaning.
[[gnu::always_inline]] inline std::uint32_t rounded_sum(std::uint32_t a, std::uint32_t b) {
  const float value = std::bit_cast<float>(a) + std::bit_cast<float>(b);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16U) & 1U);
  // Rounding must not carry a NaN's payload into an infinity.
  return value != value ? bits | 0x400000U : rounded;
}

// Two elements per 32-bit word, so that neither widening nor packing is needed.
[[gnu::always_inline]] inline void sum_bf16_loop(std::uint16_t* to, const std::uint16_t* a, const std::uint16_t* b,
                                                 std::size_t count) {
  constexpr std::uint32_t upper = 0xFFFF0000U;
#pragma GCC ivdep
  for (std::size_t i = 0; i < count / 2; ++i) {
    std::uint32_t x;
    std::uint32_t y;
    std::memcpy(&x, a + 2 * i, sizeof(x));
    std::memcpy(&y, b + 2 * i, sizeof(y));
    const std::uint32_t sums = (rounded_sum(x & upper, y & upper) & upper) | (rounded_sum(x << 16U, y << 16U) >> 16U);
    std::memcpy(to + 2 * i, &sums, sizeof(sums));
  }
  if (count % 2 != 0) {
    const std::uint32_t last = rounded_sum(std::uint32_t{a[count - 1]} << 16U, std::uint32_t{b[count - 1]} << 16U);
    to[count - 1] = static_cast<std::uint16_t>(last >> 16U);
  }
}

#if defined(__x86_64__)
[[gnu::target("avx2"), gnu::optimize("O3")]] void sum_f32_avx2(float* to, const float* a, const float* b, std::size_t count) {
  sum_f32_loop(to, a, b, count);
}
[[gnu::target("avx2"), gnu::optimize("O3")]] void sum_bf16_avx2(std::uint16_t* to, const std::uint16_t* a, const std::uint16_t* b,
                                                                std::size_t count) {
  sum_bf16_loop(to, a, b, count);
}
#endif
[[gnu::optimize("O3")]] void sum_f32_portable(float* to, const float* a, const float* b, std::size_t count) {
  sum_f32_loop(to, a, b, count);
}
[[gnu::optimize("O3")]] void sum_bf16_portable(std::uint16_t* to, const std::uint16_t* a, const std::uint16_t* b,
                                               std::size_t count) {
  sum_bf16_loop(to, a, b, count);
}

bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

SumF32 pick_f32() {
#if defined(__x86_64__)
  if (has_avx2()) return sum_f32_avx2;
#endif
  return sum_f32_portable;
}

SumBf16 pick_bf16() {
#if defined(__x86_64__)
  if (has_avx2()) return sum_bf16_avx2;
#endif
  return sum_bf16_portable;
}

}  // namespace

void sum(void* to, const void* a, const void* b, std::size_t count, DType dtype) {
  static const SumF32 sum_f32 = pick_f32();
  static const SumBf16 sum_bf16 = pick_bf16();
  switch (dtype) {
    case DType::f32:
      return sum_f32(static_cast<float*>(to), static_cast<const float*>(a), static_cast<const float*>(b), count);
    case DType::bf16:
      return sum_bf16(static_cast<std::uint16_t*>(to), static_cast<const std::uint16_t*>(a), static_cast<const std::uint16_t*>(b),
                      count);
    default:
      throw UsageError("a sum over ranks is asked for in " + std::string(name_of(dtype)) + "; only f32 and bf16 can be summed");
  }
}

}  // namespace consist
