#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "consist/error.h"
#include "plugins/transports/nccl/part_kernels.h"

namespace consist::nccl {
namespace {

__device__ __forceinline__ float number(float value) {
  return value;
}
__device__ __forceinline__ float number(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
template <typename T>
__device__ __forceinline__ T rounded(float value) {
  return static_cast<T>(value);
}

template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T element[N];
};

/// Packs of N elements; what is left over at the end, and everything where addresses are odd (N = 1), one by one.
template <typename T, int N>
__global__ void sum_kernel(HeldParts parts, T* out, std::int64_t packs) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += step) {
    float sum[N] = {};
    for (int p = 0; p < parts.count; ++p) {
      const Pack<T, N> pack = static_cast<const Pack<T, N>*>(parts.part[p])[i];
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += number(pack.element[k]);
    }
    Pack<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.element[k] = rounded<T>(sum[k]);
    reinterpret_cast<Pack<T, N>*>(out)[i] = result;
  }
}

/// Words of each part, a row of blocks per part.
template <typename Word>
__global__ void place_kernel(HeldParts parts, Word* out, std::int64_t distance, std::int64_t words) {
  const Word* from = static_cast<const Word*>(parts.part[blockIdx.y]);
  Word* to = out + blockIdx.y * distance;
  if (from == to) return;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step) to[i] = from[i];
}

void check(cudaError_t status) {
  if (status != cudaSuccess) throw SystemError(std::string("CUDA: kernels of parts failed: ") + cudaGetErrorString(status));
}

constexpr int threads = 256;

unsigned blocks_for(std::int64_t items) {
  constexpr std::int64_t most = 2048;  // enough bytes on the way on every GPU that there is
  return static_cast<unsigned>(std::min((items + threads - 1) / threads, most));
}

template <typename T>
constexpr int in_pack = 16 / static_cast<int>(sizeof(T));

template <typename T, int N>
void launch(const HeldParts& parts, void* out, std::int64_t packs, cudaStream_t stream) {
  if (packs == 0) return;
  sum_kernel<T, N><<<blocks_for(packs), threads, 0, stream>>>(parts, static_cast<T*>(out), packs);
}

template <typename T>
void launch(const HeldParts& parts, void* out, std::int64_t elements, cudaStream_t stream) {
  bool aligned = reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
  for (int p = 0; p < parts.count; ++p) aligned = aligned && reinterpret_cast<std::uintptr_t>(parts.part[p]) % 16 == 0;
  const std::int64_t packs = aligned ? elements / in_pack<T> : 0, done = packs * in_pack<T>;
  launch<T, in_pack<T>>(parts, out, packs, stream);
  HeldParts rest = parts;
  for (int p = 0; p < rest.count; ++p) rest.part[p] = static_cast<const T*>(rest.part[p]) + done;
  launch<T, 1>(rest, static_cast<T*>(out) + done, elements - done, stream);
}

template <typename Word>
void place(const HeldParts& parts, void* out, std::size_t distance, std::size_t bytes, CUstream stream) {
  const auto words = static_cast<std::int64_t>(bytes / sizeof(Word));
  if (words == 0) return;
  const dim3 blocks(blocks_for(words), static_cast<unsigned>(parts.count));
  place_kernel<<<blocks, threads, 0, stream>>>(parts, static_cast<Word*>(out), static_cast<std::int64_t>(distance / sizeof(Word)),
                                               words);
}

template <typename T>
void load() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, sum_kernel<T, in_pack<T>>));
  check(cudaFuncGetAttributes(&attributes, sum_kernel<T, 1>));
}

}  // namespace

void sum_parts(const HeldParts& parts, void* out, std::int64_t elements, DType dtype, CUstream stream) {
  if (dtype == DType::f32) {
    launch<float>(parts, out, elements, stream);
  } else if (dtype == DType::bf16) {
    launch<__nv_bfloat16>(parts, out, elements, stream);
  } else {
    throw ProgramError("cannot sum elements of " + std::string(name_of(dtype)) + "; collectives add f32 and bf16");
  }
  check(cudaGetLastError());
}

void place_parts(const HeldParts& parts, void* out, std::size_t distance, std::size_t bytes, CUstream stream) {
  std::size_t all = reinterpret_cast<std::uintptr_t>(out) | distance | bytes;
  for (int p = 0; p < parts.count; ++p) all |= reinterpret_cast<std::uintptr_t>(parts.part[p]);
  if (all % sizeof(uint4) == 0) {
    place<uint4>(parts, out, distance, bytes, stream);
  } else if (all % sizeof(std::uint32_t) == 0) {
    place<std::uint32_t>(parts, out, distance, bytes, stream);
  } else {
    place<std::uint8_t>(parts, out, distance, bytes, stream);
  }
  check(cudaGetLastError());
}

void load_part_kernels() {
  load<float>();
  load<__nv_bfloat16>();
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, place_kernel<uint4>));
  check(cudaFuncGetAttributes(&attributes, place_kernel<std::uint32_t>));
  check(cudaFuncGetAttributes(&attributes, place_kernel<std::uint8_t>));
}

}  // namespace consist::nccl
