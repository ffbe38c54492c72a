// Random bits that depend on nothing but their counter and key (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2,
// 3").
#pragma once

#include <cstdint>

namespace consist::cuda {

/// Philox4x32 with 7 rounds, the fewest that pass BigCrush in that paper: 128 bits.
__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
#pragma unroll
  for (int round = 0; round < 7; ++round) {
    const std::uint32_t high0 = __umulhi(0xD2511F53U, counter.x), low0 = 0xD2511F53U * counter.x;
    const std::uint32_t high1 = __umulhi(0xCD9E8D57U, counter.z), low1 = 0xCD9E8D57U * counter.z;
    counter = {high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0};
    key.x += 0x9E3779B9U;
    key.y += 0xBB67AE85U;
  }
  return counter;
}

/// The i-th 32 of the 128 bits.
__device__ __forceinline__ std::uint32_t word(const uint4& bits, int i) {
  return i == 0 ? bits.x : i == 1 ? bits.y : i == 2 ? bits.z : bits.w;
}

}  // namespace consist::cuda
