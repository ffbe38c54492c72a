// Attention's own forward kernel: a block goes over the keys of its queries.
#include "plugins/devices/cuda/kernels/attention/attention_tiles.cuh"

namespace consist::cuda {
namespace {

using namespace tiles;

/// Bytes of shared memory of a block.
template <int D, int R>
struct Shared {
  static constexpr int bytes = (2 * tile<R> * (D + 4) + tile<R> * score_row_stride<R>)*4;
};

/// Scores of queries from `first` and keys from `start` on become weights of the softmax over all keys so far, whose largest score, sum
/// and weighted values are brought to the same base.
template <int D, int R, bool Hidden, bool Capped>
__device__ __forceinline__ void add_to_softmax(float (&scores)[R][R], float (&largest)[R], float (&sum)[R],
                                               float4 (&result)[R][quads<D>], const int (&first_key)[R], const Extents& e,
                                               int first, int start) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int last = e.last_seen(first + row_of<R>(i));
    float most = largest[i];
#pragma unroll
    for (int j = 0; j < R; ++j) {
      const int key = start + column_of(j);
      if constexpr (Capped) scores[i][j] = e.capped(scores[i][j]);
      scores[i][j] = key <= last && (!Hidden || key >= first_key[i]) ? scores[i][j] * e.scale : -INFINITY;
      most = fmaxf(most, scores[i][j]);
    }
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, distance));
    // Where nothing is hidden every query sees key 0, so that `most` is finite from the first tile<R> on.
    const float base = Hidden && most == -INFINITY ? 0.0F : most;
    const float shrink = exp2f(largest[i] - base);
    largest[i] = most;
    sum[i] *= shrink;
#pragma unroll
    for (int j = 0; j < R; ++j) {
      scores[i][j] = exp2f(scores[i][j] - base);
      sum[i] += scores[i][j];
    }
#pragma unroll
    for (int j = 0; j < quads<D>; ++j) {
      result[i][j].x *= shrink;
      result[i][j].y *= shrink;
      result[i][j].z *= shrink;
      result[i][j].w *= shrink;
    }
  }
}

/// Block (query tile<R>, head, batch). Tiles of late queries see most keys and start first.
template <int D, int R, bool Hidden, bool Capped>
__global__ void __launch_bounds__(tile_threads, 2)
    attend(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v, float* __restrict__ o,
           float* __restrict__ lse, const std::int32_t* __restrict__ starts, Extents e) {
  extern __shared__ float4 memory[];
  float *queries = reinterpret_cast<float*>(memory), *keys = queries + tile<R> * (D + 4),
        *weights = keys + tile<R> * (D + 4);  // keys, then values
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * tile<R>, head = blockIdx.y, b = blockIdx.z,
            kv_head = head / e.group;
  load_tile<D, R>(q, e, e.queries, b, head, e.read.q, first, queries);
  float4 result[R][quads<D>] = {};
  float largest[R], sum[R] = {};
#pragma unroll
  for (int i = 0; i < R; ++i) largest[i] = -INFINITY;
  const int seen = min(first + tile<R> + e.shift, e.keys.count);  // keys that the last of these queries sees
  const int begin = Hidden ? first_seen_by(e, starts, b, first, tile<R>) / tile<R> * tile<R> : 0;
  int first_key[R] = {};  // that each query sees
  if constexpr (Hidden) {
#pragma unroll
    for (int i = 0; i < R; ++i) first_key[i] = e.first_seen(starts, b, min(first + row_of<R>(i), e.queries.count - 1));
  }
  for (int start = begin; start < seen; start += tile<R>) {
    __syncthreads();  // the values of the tile<R> before were read
    load_tile<D, R>(k, e, e.keys, b, kv_head, e.read.k, start, keys);
    __syncthreads();
    float scores[R][R];
    product_of_rows<D, R>(queries, keys, scores);
    __syncthreads();
    load_tile<D, R>(v, e, e.keys, b, kv_head, e.read.v, start, keys);
    add_to_softmax<D, R, Hidden, Capped>(scores, largest, sum, result, first_key, e, first, start);
    store_scores(scores, weights);
    __syncthreads();
    add_weighted_rows<D, R>(weights, keys, result);
  }
  float inverse[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const float total = sum_of_lanes<16>(sum[i]);
    inverse[i] = Hidden && total == 0.0F ? 0.0F : 1.0F / total;
    const int row = first + row_of<R>(i);
    if (threadIdx.x % 16 == 0 && row < e.queries.count) {
      lse[(static_cast<std::int64_t>(b) * e.heads + head) * e.queries.count + row] =
          (largest[i] + log2f(total)) * 0.6931471805599453F;
    }
  }
  store_rows<D, R>(
      result, [&inverse](int i) { return inverse[i]; }, o, e, e.queries, b, head, e.o, first);
}

template <int D, int R, bool Hidden, bool Capped>
class TiledAttention final : public Kernel {
 public:
  explicit TiledAttention(const AttentionShape& shape) : shape_(shape) {
    allow_shared(attend<D, R, Hidden, Capped>, Shared<D, R>::bytes);
  }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    if (shape_.batch * shape_.sequence == 0) return;
    attend<D, R, Hidden, Capped><<<grid_of<R>(shape_, shape_.sequence, shape_.heads), tile_threads, Shared<D, R>::bytes, stream_of(queue)>>>(
        in[0].as<float>(), in[1].as<float>(), in[2].as<float>(), out[0].as<float>(), out[1].as<float>(),
        shape_.documents ? in[3].as<std::int32_t>() : nullptr, Extents(shape_));
    check_launch("attention");
  }

 private:
  AttentionShape shape_;
};

}  // namespace

Made make_tiled_attention(const AttentionShape& shape, const KernelSettings& s) {
  return for_shape<TiledAttention, Shared>(shape, shape.heads, s);
}

}  // namespace consist::cuda
