// Computes from the forward's result what attention's own backward needs.
#pragma once

#include "plugins/devices/cuda/kernels/attention/attention_extents.cuh"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {

inline constexpr int delta_threads = 256;

/// Caps a product of q and k in place where scores are Capped, and returns the cap's derivative there.
template <bool Capped>
__device__ __forceinline__ float capped_slope(const Extents& e, float& product) {
  if constexpr (!Capped) return 1.0F;
  product = e.capped(product);
  return e.slope_at(product);
}

/// delta [batch, heads, sequence] = Σ over dim of do·o: a warp for each.
template <typename T>
__global__ void __launch_bounds__(delta_threads)
    sum_products(const T* __restrict__ dout, const T* __restrict__ o, float* __restrict__ delta, Extents e, std::int64_t rows) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * delta_threads + threadIdx.x) / 32;  // (b, query, head)
  if (row >= rows) return;
  const std::int64_t query = row / e.heads % e.queries.count;
  const int head = static_cast<int>(row % e.heads), b = static_cast<int>(row / e.heads / e.queries.count);
  const std::int64_t at = e.at(e.queries, b, static_cast<int>(query), head, e.o);
  float sum = 0.0F;
  for (int i = threadIdx.x % 32; i < e.dim; i += 32) sum += number(dout[at + i]) * number(o[at + i]);
  sum = sum_of_lanes(sum);
  if (threadIdx.x % 32 == 0) delta[(static_cast<std::int64_t>(b) * e.heads + head) * e.queries.count + query] = sum;
}

/// Tensors that backward reads: do, q, o [batch, sequence, heads, dim]; k, v [batch, sequence, kv_heads, dim]; lse, delta [batch,
/// heads, sequence]; and those that it writes.
template <typename T>
struct AttentionGradients {
  const T *dout, *q, *k, *v;
  const float *lse, *delta;
  const std::int32_t* starts;  ///< of documents, [batch, sequence], or null
  T *dq, *dk, *dv;
};

inline std::int64_t delta_rows(const AttentionShape& shape) {
  return shape.batch * shape.sequence * shape.heads;
}

/// From the buffers of the op attention_grad, with delta made in `workspace` (f32, delta_rows() of them).
template <typename T>
AttentionGradients<T> with_delta(const AttentionShape& shape, std::span<const Buffer> in, std::span<const Buffer> out,
                                 void* workspace, cudaStream_t stream) {
  auto* delta = static_cast<float*>(workspace);
  const std::int64_t rows = delta_rows(shape);
  sum_products<T><<<blocks_of(divided_up(rows * 32, delta_threads)), delta_threads, 0, stream>>>(in[0].as<T>(), in[4].as<T>(),
                                                                                                 delta, Extents(shape), rows);
  check_launch("attention_grad, sums of do·o");
  return {in[0].as<T>(),
          in[1].as<T>(),
          in[2].as<T>(),
          in[3].as<T>(),
          in[5].as<float>(),
          delta,
          shape.documents ? in[6].as<std::int32_t>() : nullptr,
          out[0].as<T>(),
          out[1].as<T>(),
          out[2].as<T>()};
}

}  // namespace consist::cuda
