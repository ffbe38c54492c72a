// The largest magnitude of a tensor, by whoever has its elements in registers. Magnitudes are compared as bits of a float without
// its sign: infinity is above all numbers and NaN above that; the result depends on no order.
#pragma once

#include <cstdint>

#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {

/// Largest magnitudes of two interleaved halves of a tensor of bf16.
struct PairAmax {
  std::uint32_t largest = 0;

  __device__ __forceinline__ void add(std::uint32_t pair) { largest = __vmaxu2(largest, pair & 0x7fff7fffU); }
  /// The elements of a pack of bf16.
  template <int N>
  __device__ __forceinline__ void add(const Pack<bf16, N>& pack) {
#pragma unroll
    for (int i = 0; i < N; ++i) add(static_cast<std::uint32_t>(__bfloat16_as_ushort(pack.element[i])) << 16);
  }
  template <int N>
  __device__ __forceinline__ void add(const Words<bf16, N>& words) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) add(words.word[i]);
  }
  /// As the bits of an f32.
  __device__ __forceinline__ std::uint32_t bits() const {
    return max(largest & 0xffff0000U, largest << 16);
  }
};

/// Before a kernel whose blocks call raise_amax().
inline void clear_amax(float* amax, cudaStream_t stream) {
  check(cudaMemsetAsync(amax, 0, sizeof(float), stream), "cudaMemsetAsync");
}

/// Raises `amax` to the largest `mine` of the block. All threads of the block must call it, and none may call it again before the
/// block meets once more; blocks are whole warps.
__device__ __forceinline__ void raise_amax(std::uint32_t mine, float* amax) {
  __shared__ std::uint32_t of_warp[32];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x, warps = blockDim.x * blockDim.y / 32;
  mine = __reduce_max_sync(0xffffffffU, mine);
  if (thread % 32 == 0) of_warp[thread / 32] = mine;
  __syncthreads();
  if (thread != 0) return;
  for (unsigned warp = 1; warp < warps; ++warp) mine = max(mine, of_warp[warp]);
  auto* const largest = reinterpret_cast<std::uint32_t*>(amax);
  // Most blocks find a larger one there, and atomics of all blocks on one word are what would take time.
  if (mine > *static_cast<volatile std::uint32_t*>(largest)) atomicMax(largest, mine);
}

}  // namespace consist::cuda
