// The softmax of rows of logits, one block per row: its denominator, and the gradient of a cross-entropy in the logits' place.
#pragma once

#include <cmath>
#include <cstdint>

#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {

inline constexpr int softmax_threads = 512;  // of a block
inline constexpr float log2_e = 1.4426950408889634F;

/// Largest value and the sum of 2^(log2(e)·(x − largest)) over what was added, in one pass (Milakov and Gimelshein, 2018, "Online
/// normalizer calculation for softmax").
struct RunningSoftmax {
  float largest = -INFINITY, sum = 0;
  __device__ void add(RunningSoftmax o) {
    const float top = fmaxf(largest, o.largest);
    if (top == -INFINITY) return;
    sum = sum * exp2f((largest - top) * log2_e) + o.sum * exp2f((o.largest - top) * log2_e);
    largest = top;
  }
  __device__ float log_denominator() const { return largest + logf(sum); }
};

/// Reduces a row of `n` logits. All threads of the block must call it, once, and get the result. n is a multiple of N.
template <int N, typename T>
__device__ RunningSoftmax softmax_of_row(const T* logits, std::int64_t n) {
  __shared__ RunningSoftmax of_warp[softmax_threads / 32];
  RunningSoftmax mine;
  const std::int64_t packs = n / N;
#pragma unroll 4
  for (std::int64_t p = threadIdx.x; p < packs; p += softmax_threads) {
    const Pack<T, N> pack = load_pack<N>(logits + p * N);
    float largest = number(pack.element[0]);
#pragma unroll
    for (int j = 1; j < N; ++j) largest = fmaxf(largest, number(pack.element[j]));
    if (largest > mine.largest) {
      mine.sum *= exp2f((mine.largest - largest) * log2_e);
      mine.largest = largest;
    }
    const float base = mine.largest * log2_e;
#pragma unroll
    for (int j = 0; j < N; ++j) mine.sum += exp2f(fmaf(number(pack.element[j]), log2_e, -base));
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    mine.add({__shfl_xor_sync(~0U, mine.largest, distance), __shfl_xor_sync(~0U, mine.sum, distance)});
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  RunningSoftmax all = of_warp[0];
  for (int w = 1; w < softmax_threads / 32; ++w) all.add(of_warp[w]);
  return all;
}

/// logits = factor·exp(logits − from) + of_target·one-hot in place, rounded once; `target` is the target's place in the row,
/// negative if it is not in it. Nobody may want to read the target's logit any more.
template <int N, typename T>
__device__ void softmax_gradient_of_row(T* logits, std::int64_t n, float from, float factor, std::int64_t target,
                                        float of_target) {
  const float base = from * log2_e;
#pragma unroll 4
  for (std::int64_t p = threadIdx.x; p < n / N; p += softmax_threads) {
    Pack<T, N> pack = load_pack<N>(logits + p * N);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float d = factor * exp2f(fmaf(number(pack.element[j]), log2_e, -base));
      if (p * N + j == target) d += of_target;
      pack.element[j] = rounded<T>(d);
    }
    store_pack<N>(logits + p * N, pack);
  }
}

template <typename T>
__device__ void clear_row(T* row, std::int64_t n) {
  for (std::int64_t i = threadIdx.x; i < n; i += softmax_threads) row[i] = rounded<T>(0.0F);
}

}  // namespace consist::cuda
