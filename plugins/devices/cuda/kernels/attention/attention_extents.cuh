// Extents of the tensors of attention's own kernels, and the keys that a query sees.
#pragma once

#include <cstdint>

#include "plugins/devices/cuda/kernels/attention/attention.h"
#include "plugins/devices/cuda/kernels/common/launch.h"

namespace consist::cuda {

/// Tokens of one side of attention: queries or keys.
struct Tokens {
  int count;  ///< of a sequence
  int apart;  ///< from one sequence of the batch to the next in memory
};

struct Extents {
  Tokens queries, keys;
  int shift;   ///< query i sees the keys 0 … i + shift that there are
  int window;  ///< and of them the last so many; 0: all
  int first_position;
  int heads, kv_heads, dim, group;
  TokenStrides read, written;
  std::int64_t o;  ///< elements from token to token of o and do
  float scale;     ///< of scores, times log2(e): exponentials are powers of two
  float cap, per_cap;  ///< the soft-cap in units of products of q and k, and 1 over it; 0: none
  explicit Extents(const AttentionShape& s)
      : queries{static_cast<int>(s.sequence), static_cast<int>(s.query_tokens)},
        keys{static_cast<int>(s.keys), static_cast<int>(s.key_tokens)},
        shift(static_cast<int>(s.shift)),
        window(static_cast<int>(s.window)),
        first_position(static_cast<int>(s.first_position)),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        dim(static_cast<int>(s.dim)),
        group(static_cast<int>(s.group())),
        read(s.read),
        written(s.written),
        o(s.heads * s.dim),
        scale(static_cast<float>(1.4426950408889634 * s.scores.scale)),
        cap(static_cast<float>(s.scores.cap / s.scores.scale)),
        per_cap(s.scores.cap > 0 ? static_cast<float>(s.scores.scale / s.scores.cap) : 0.0F) {}
  /// A product of q and k, softly capped.
  __device__ float capped(float product) const { return cap * tanhf(product * per_cap); }
  /// The derivative of capped() where it gave `score`.
  __device__ float slope_at(float score) const { return 1.0F - score * per_cap * (score * per_cap); }
  __device__ int last_seen(int query) const { return min(query + shift, keys.count - 1); }
  /// `starts`: of documents, or null.
  __device__ int first_seen(const std::int32_t* __restrict__ starts, int b, int query) const {
    return first_seen_from(starts == nullptr ? first_position : starts[static_cast<std::int64_t>(b) * queries.apart + query],
                           query);
  }
  /// The same where the query's document starts at position `document`.
  __device__ int first_seen_from(int document, int query) const {
    const int first = window == 0 ? 0 : max(query + shift - window + 1, 0);
    return max(first, document - first_position);
  }
  /// Element (b, token, head, 0) of a tensor whose tokens lie `row` elements apart.
  __device__ std::int64_t at(const Tokens& tokens, int b, int token, int head, std::int64_t row) const {
    return (static_cast<std::int64_t>(b) * tokens.apart + token) * row + head * dim;
  }
};

/// The first key that any of the queries [first, first + count) sees. All threads of the block must call it, once.
__device__ inline int first_seen_by(const Extents& e, const std::int32_t* __restrict__ starts, int b, int first, int count) {
  __shared__ int least;
  if (threadIdx.x == 0) least = e.keys.count;
  __syncthreads();
  const int row = first + static_cast<int>(threadIdx.x);
  if (static_cast<int>(threadIdx.x) < count && row < e.queries.count) atomicMin(&least, e.first_seen(starts, b, row));
  __syncthreads();
  return least;
}

/// More than 48 KiB of shared memory must be asked for, once per kernel and device.
template <typename Function>
void allow_shared(Function* kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "ask for shared memory for attention");
}

}  // namespace consist::cuda
