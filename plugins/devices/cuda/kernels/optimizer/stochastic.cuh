// Stochastic rounding to bf16, by bits that follow from an element's place, the step, the tensor and a seed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "plugins/devices/cuda/kernels/optimizer/philox.cuh"

namespace consist::cuda {

/// A value that is rounded to bf16 at random by cutting off the lower half of its bits: those are raised by 16 random ones, so
/// that it goes up with the probability of what is cut off and small updates are not lost on average. Infinities and NaN stay.
__device__ __forceinline__ float raised(float value, std::uint32_t random16) {
  const std::uint32_t bits = __float_as_uint(value);
  return __uint_as_float((bits & 0x7f800000U) == 0x7f800000U ? bits : bits + random16);
}

/// The same with the lower half cut off: exact in bf16, but for NaN.
__device__ __forceinline__ float raised_and_cut(float value, std::uint32_t random16) {
  return __uint_as_float(__float_as_uint(raised(value, random16)) & 0xffff0000U);
}

/// 32 random bits for each of the elements 4·four … 4·four + 3 of a tensor: the same however they are reached. `op`: 0, or another
/// number for an op whose tensors are not numbered apart from those of others.
__device__ __forceinline__ uint4 random_bits(std::int64_t four, std::uint32_t step, std::uint32_t tensor, std::uint32_t seed,
                                             std::uint32_t op = 0) {
  return philox({static_cast<std::uint32_t>(four), static_cast<std::uint32_t>(four >> 32), step, op}, {seed, tensor});
}

}  // namespace consist::cuda
