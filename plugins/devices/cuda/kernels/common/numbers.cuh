// Numbers in kernels: f32 and bf16 elements, arithmetic in f32; accesses of 16 bytes; sums over warps and blocks in a fixed
// order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace consist::cuda {

using bf16 = __nv_bfloat16;

/// Mask of a warp's lanes, all of which take part.
constexpr unsigned all_lanes = 0xffffffffU;

/// Elements of T in one access of 16 bytes.
template <typename T>
inline constexpr int per_access = 16 / static_cast<int>(sizeof(T));

/// N consecutive elements, moved together. Where they have more than 16 bytes (gradients in f32 beside activations in bf16) the
/// compiler makes several accesses of 16.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T element[N];
};

template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, typename T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

__device__ __forceinline__ float number(float value) {
  return value;
}
__device__ __forceinline__ float number(bf16 value) {
  return __bfloat162float(value);
}

/// Rounded to nearest, ties to even.
template <typename T>
__device__ __forceinline__ T rounded(float value);
template <>
__device__ __forceinline__ float rounded<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ bf16 rounded<bf16>(float value) {
  return __float2bfloat16_rn(value);
}

/// N elements as the words they were loaded in: of a Pack the compiler keeps every single bf16 in a register of its own.
/// N·sizeof(T) is 8 or a multiple of 16.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Words {
  std::uint32_t word[N * sizeof(T) / 4];

  /// Element i, which must be known to the compiler.
  __device__ __forceinline__ float operator[](int i) const {
    const std::uint32_t bits = word[i * static_cast<int>(sizeof(T)) / 4];
    if constexpr (sizeof(T) == 4)
      return __uint_as_float(bits);
    else
      return __uint_as_float(i % 2 == 0 ? bits << 16 : bits & 0xffff0000U);
  }
  /// Elements i and i + 1, i even, rounded to nearest.
  __device__ __forceinline__ void set_pair(int i, float first, float second) {
    if constexpr (sizeof(T) == 4) {
      word[i] = __float_as_uint(first);
      word[i + 1] = __float_as_uint(second);
    } else {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
      word[i / 2] = static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y)) << 16 | __bfloat16_as_ushort(pair.x);
    }
  }
};
template <int N, typename T>
__device__ __forceinline__ Words<T, N> load_words(const T* from) {
  return *reinterpret_cast<const Words<T, N>*>(from);
}
template <int N, typename T>
__device__ __forceinline__ void store_words(T* to, const Words<T, N>& words) {
  *reinterpret_cast<Words<T, N>*>(to) = words;
}

/// The sum over groups of `width` neighbouring lanes (a power of two), in every lane. All lanes of the warp must call it.
template <int width = 32>
__device__ __forceinline__ float sum_of_lanes(float value) {
#pragma unroll
  for (int distance = width / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(all_lanes, value, distance);
  return value;
}

/// The sum over the threads of equal threadIdx.y, in each of them; blockDim.x is a multiple of 32. `scratch` is shared memory of
/// one float per warp of the block. All threads of the block must call it, and none may use that scratch again before the block
/// meets once more.
__device__ __forceinline__ float sum_of_row(float value, float* scratch) {
  value = sum_of_lanes(value);
  const int warps = static_cast<int>(blockDim.x) / 32;
  if (warps == 1) return value;
  float* mine = scratch + threadIdx.y * warps;
  if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0F;
  for (int warp = 0; warp < warps; ++warp) sum += mine[warp];
  return sum;
}

/// The sum over the block, in thread 0, 0 in others; blockDim.y is 1. Once in a kernel: its scratch is not given back.
__device__ __forceinline__ double sum_of_block(double value) {
  __shared__ double sums[32];
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(all_lanes, value, distance);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0) {
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) total += sums[warp];
  }
  return total;
}

}  // namespace consist::cuda
