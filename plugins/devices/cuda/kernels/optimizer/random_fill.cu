#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/optimizer/random_fill.h"

namespace consist::cuda {
namespace {

/// A mixing of 32 bits in which every input bit reaches every output bit (the finaliser of MurmurHash3; Appleby, 2011).
__device__ std::uint32_t mix(std::uint32_t h) {
  h ^= h >> 16;
  h *= 0x85ebca6bU;
  h ^= h >> 13;
  h *= 0xc2b2ae35U;
  return h ^ (h >> 16);
}

template <typename T>
__global__ void fill(T* to, std::int64_t elements, std::uint32_t seed) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < elements; i += stride) {
    const std::uint32_t bits = mix(static_cast<std::uint32_t>(i) ^ mix(seed + static_cast<std::uint32_t>(i >> 32)));
    to[i] = static_cast<T>(static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31F);
  }
}

}  // namespace

void fill_random(void* memory, std::int64_t elements, DType type, std::uint32_t seed, cudaStream_t stream) {
  if (elements == 0) return;
  const int blocks = static_cast<int>(std::min<std::int64_t>((elements + 255) / 256, 4096));
  if (type == DType::f32) {
    fill<<<blocks, 256, 0, stream>>>(static_cast<float*>(memory), elements, seed);
  } else if (type == DType::bf16) {
    fill<<<blocks, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(memory), elements, seed);
  } else if (type == DType::e4m3) {
    fill<<<blocks, 256, 0, stream>>>(static_cast<__nv_fp8_e4m3*>(memory), elements, seed);
  } else if (type == DType::e5m2) {
    fill<<<blocks, 256, 0, stream>>>(static_cast<__nv_fp8_e5m2*>(memory), elements, seed);
  } else {
    throw UnavailableError("random data of dtype " + std::string(name_of(type)) + " is not made on the GPU");
  }
  check_launch("fill_random");
}

}  // namespace consist::cuda
