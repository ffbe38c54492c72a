// Tiles of causal attention on the ordinary arithmetic units, shared by forward and backward: f32 products of f32
// elements in tiles of queries by keys with a running softmax (Dao et al., 2022, "FlashAttention"). Every sum has a fixed order;
// nothing is added by atomics.
//
// A block is 16 x 16 threads, a tile is 16·R queries and as many keys. Of a tile of scores thread (y, x) holds rows R·y … R·y + R
// − 1 and columns x, x + 16, …; of a result [16·R, dim] the same rows (or keys) and columns 4x + 64j … 4x + 64j + 3. Tiles in
// shared memory are row-major with a row stride of dim + 4 floats, so that accesses of 16 bytes of 8 neighbouring rows fall into
// different banks. R is 4; 2 where tiles of 64 would leave multiprocessors without work or do not fit into shared memory (GPUs
// other than Hopper), and for bf16.
#pragma once

#include "plugins/devices/cuda/kernels/attention/attention_extents.cuh"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda::tiles {

inline constexpr int tile_threads = 256;
template <int R>
constexpr int tile = 16 * R;  // queries and keys
template <int R>
constexpr int score_row_stride = tile<R> + 4;  // of a tile of scores

template <int R>
__device__ __forceinline__ int row_of(int i) {
  return static_cast<int>(threadIdx.x) / 16 * R + i;
}
__device__ __forceinline__ int column_of(int j) {
  return static_cast<int>(threadIdx.x) % 16 + 16 * j;
}

/// Rows [first, first + 16·R) of one head into a tile<R> [16·R, D] of row stride D + 4; what lies beyond the sequence or the head
/// is 0.
template <int D, int R>
__device__ void load_tile(const float* __restrict__ tensor, const Extents& e, const Tokens& tokens, int b, int head,
                          std::int64_t token_row, int first, float* to) {
  constexpr int row_stride = D + 4;
  if (e.dim == D && token_row % 4 == 0 && reinterpret_cast<std::uintptr_t>(tensor) % 16 == 0) {
    for (int i = threadIdx.x; i < tile<R> * D / 4; i += tile_threads) {
      const int row = i / (D / 4), column = i % (D / 4) * 4;
      float4 four{};
      if (first + row < tokens.count)
        four = *reinterpret_cast<const float4*>(tensor + e.at(tokens, b, first + row, head, token_row) + column);
      *reinterpret_cast<float4*>(to + row * row_stride + column) = four;
    }
  } else {
    for (int i = threadIdx.x; i < tile<R> * D; i += tile_threads) {
      const int row = i / D, column = i % D;
      to[row * row_stride + column] =
          first + row < tokens.count && column < e.dim ? tensor[e.at(tokens, b, first + row, head, token_row) + column] : 0.0F;
    }
  }
}

__device__ __forceinline__ float component(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/// scores[i][j] = Σ over D of left[row i] · right[column j]
template <int D, int R>
__device__ __forceinline__ void product_of_rows(const float* left, const float* right, float (&scores)[R][R]) {
  constexpr int row_stride = D + 4;
#pragma unroll
  for (int i = 0; i < R; ++i) {
#pragma unroll
    for (int j = 0; j < R; ++j) scores[i][j] = 0.0F;
  }
#pragma unroll 4
  for (int d = 0; d < D; d += 4) {
    float4 b[R];
#pragma unroll
    for (int j = 0; j < R; ++j) b[j] = *reinterpret_cast<const float4*>(right + column_of(j) * row_stride + d);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const float4 a = *reinterpret_cast<const float4*>(left + row_of<R>(i) * row_stride + d);
#pragma unroll
      for (int j = 0; j < R; ++j) scores[i][j] += a.x * b[j].x + a.y * b[j].y + a.z * b[j].z + a.w * b[j].w;
    }
  }
}

template <int D>
constexpr int quads = D / 64;  // groups of 4 columns of a result that a thread holds

/// result[i] += Σ over k of weights[row i][k] · values[k], k over the rows of `values`
template <int D, int R>
__device__ __forceinline__ void add_weighted_rows(const float* weights, const float* values, float4 (&result)[R][quads<D>]) {
  constexpr int row_stride = D + 4;
#pragma unroll 2
  for (int k = 0; k < tile<R>; k += 4) {
    float4 w[R];
#pragma unroll
    for (int i = 0; i < R; ++i) w[i] = *reinterpret_cast<const float4*>(weights + row_of<R>(i) * score_row_stride<R> + k);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int j = 0; j < quads<D>; ++j) {
        const float4 value = *reinterpret_cast<const float4*>(values + (k + step) * row_stride + threadIdx.x % 16 * 4 + 64 * j);
#pragma unroll
        for (int i = 0; i < R; ++i) {
          const float weight = component(w[i], step);
          result[i][j].x += weight * value.x;
          result[i][j].y += weight * value.y;
          result[i][j].z += weight * value.z;
          result[i][j].w += weight * value.w;
        }
      }
    }
  }
}

/// result[i] += Σ over k of weights[k][row i] · values[k]: the same with the transposed tile<R> of weights
template <int D, int R>
__device__ __forceinline__ void add_weighted_rows_transposed(const float* weights, const float* values,
                                                             float4 (&result)[R][quads<D>]) {
  constexpr int row_stride = D + 4;
#pragma unroll 4
  for (int k = 0; k < tile<R>; ++k) {
    const Pack<float, R> w = load_pack<R>(weights + k * score_row_stride<R> + row_of<R>(0));
#pragma unroll
    for (int j = 0; j < quads<D>; ++j) {
      const float4 value = *reinterpret_cast<const float4*>(values + k * row_stride + threadIdx.x % 16 * 4 + 64 * j);
#pragma unroll
      for (int i = 0; i < R; ++i) {
        const float weight = w.element[i];
        result[i][j].x += weight * value.x;
        result[i][j].y += weight * value.y;
        result[i][j].z += weight * value.z;
        result[i][j].w += weight * value.w;
      }
    }
  }
}

template <int R>
__device__ __forceinline__ void store_scores(const float (&scores)[R][R], float* to) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
#pragma unroll
    for (int j = 0; j < R; ++j) to[row_of<R>(i) * score_row_stride<R> + column_of(j)] = scores[i][j];
  }
}

/// Rows `first` + row i of one head: factor(i) · result[i], rounded.
template <int D, int R, typename Factor>
__device__ void store_rows(const float4 (&result)[R][quads<D>], Factor factor, float* tensor, const Extents& e,
                           const Tokens& tokens, int b, int head, std::int64_t token_row, int first) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (first + row_of<R>(i) >= tokens.count) continue;
    float* to = tensor + e.at(tokens, b, first + row_of<R>(i), head, token_row);
#pragma unroll
    for (int j = 0; j < quads<D>; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int column = static_cast<int>(threadIdx.x) % 16 * 4 + 64 * j + k;
        if (column < e.dim) to[column] = component(result[i][j], k) * factor(i);
      }
    }
  }
}

template <int R>
dim3 grid_of(const AttentionShape& s, std::int64_t tokens, std::int64_t heads) {
  return {blocks_of(divided_up(tokens, tile<R>)), static_cast<unsigned>(heads), static_cast<unsigned>(s.batch)};
}

/// True if tiles of 64 keep every multiprocessor busy and their kernel, which needs `shared` bytes, fits.
inline bool large_tiles(const AttentionShape& shape, std::int64_t heads, int shared, const KernelSettings& s) {
  int available = 0;
  check(cudaDeviceGetAttribute(&available, cudaDevAttrMaxSharedMemoryPerBlockOptin, s.device),
        "ask for the size of shared memory");
  return shared <= available && divided_up(shape.sequence, tile<4>) * heads * shape.batch >= s.multiprocessors;
}

/// K<D, R, Hidden, Capped> for the size of heads, whose kernels need Shared<D, R>::bytes. Hidden: windows or documents hide keys
/// from queries, which costs registers; Capped: scores have a soft-cap.
template <template <int, int, bool, bool> class K, template <int, int> class Shared>
Made for_shape(const AttentionShape& shape, std::int64_t heads, const KernelSettings& s) {
  const auto of_dim = [&]<int D>(std::integral_constant<int, D>) -> Made {
    if (shape.scores.cap > 0) return std::make_unique<K<D, 2, true, true>>(shape);
    if (shape.window > 0 || shape.documents) return std::make_unique<K<D, 2, true, false>>(shape);
    if (large_tiles(shape, heads, Shared<D, 4>::bytes, s)) return std::make_unique<K<D, 4, false, false>>(shape);
    return std::make_unique<K<D, 2, false, false>>(shape);
  };
  return shape.dim <= 64 ? of_dim(std::integral_constant<int, 64>{}) : of_dim(std::integral_constant<int, 128>{});
}

}  // namespace consist::cuda::tiles
