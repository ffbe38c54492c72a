// Stochastic rounding to bf16, by bits that follow from an element's place and a seed.
#pragma once

#include <bit>
#include <cstdint>

#include "plugins/devices/cpu/kernels/common/numbers.h"

namespace consist::cpu {

/// A 32-bit mixer (lowbias32's form): uniform bits from (element, seed).
inline std::uint32_t mix(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352dU;
  x = (x ^ x >> 15) * 0x846ca68bU;
  return x ^ x >> 16;
}

inline void store_stochastic(float& to, float value, std::uint32_t) {
  to = value;
}
/// Rounds up with the probability of the part that is cut off, so that small updates are not lost on average.
inline void store_stochastic(bf16& to, float value, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7f800000U) == 0x7f800000U)
    store(to, value);
  else
    to.bits = static_cast<std::uint16_t>((bits + (random & 0xffffU)) >> 16);
}

/// The seed of parameter number `index` of an instruction in step `step`.
inline std::uint32_t seed_of(std::uint32_t seed, float step, std::size_t index) {
  return mix(seed * 0x9e3779b9U + static_cast<std::uint32_t>(step) * 0x85ebca6bU + static_cast<std::uint32_t>(index));
}

}  // namespace consist::cpu
