// Attention's own backward: one kernel whose blocks own keys (dk, dv) and one whose blocks own queries (dq), which makes the
// scores twice, so that no sum needs atomics.
#include "plugins/devices/cuda/kernels/attention/attention_delta.cuh"
#include "plugins/devices/cuda/kernels/attention/attention_tiles.cuh"

namespace consist::cuda {
namespace {

using namespace tiles;
using Gradients = AttentionGradients<float>;

/// Bytes of shared memory of a block.
template <int D, int R>
struct Shared {
  static constexpr int bytes = (4 * tile<R> * (D + 4) + 2 * tile<R> * score_row_stride<R>)*4;
};

/// The tile's probabilities and the gradients of its scaled scores, from products of queries with keys and of do with values.
template <int R, bool Hidden, bool Capped>
__device__ __forceinline__ void gradients_of_scores(float (&p)[R][R], float (&dp)[R][R], const float* lse, const float* delta,
                                                    const Extents& e, const std::int32_t* starts, int b, int first, int start) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int row = first + row_of<R>(i);
    const bool there = row < e.queries.count;
    const int last = e.last_seen(row), first_key = Hidden && there ? e.first_seen(starts, b, row) : 0;
    const float l = there ? lse[row] * 1.4426950408889634F : 0.0F, d = there ? delta[row] : 0.0F;
#pragma unroll
    for (int j = 0; j < R; ++j) {
      const int key = start + column_of(j);
      const float slope = capped_slope<Capped>(e, p[i][j]);
      p[i][j] = there && key <= last && (!Hidden || key >= first_key) ? exp2f(p[i][j] * e.scale - l) : 0.0F;
      dp[i][j] = p[i][j] * (dp[i][j] - d) * slope;
    }
  }
}

/// Block (key tile<R>, kv head, batch): dk and dv of its keys over all query heads of the group and all later queries.
template <int D, int R, bool Hidden, bool Capped>
__global__ void __launch_bounds__(tile_threads, 1) attend_grad_keys(Gradients t, Extents e) {
  extern __shared__ float4 memory[];
  constexpr int size = tile<R> * (D + 4);
  float *keys = reinterpret_cast<float*>(memory), *values = keys + size, *queries = values + size, *douts = queries + size,
        *p_tile = douts + size, *dp_tile = p_tile + tile<R> * score_row_stride<R>;
  const int start = static_cast<int>(blockIdx.x) * tile<R>, kv_head = blockIdx.y, b = blockIdx.z;
  load_tile<D, R>(t.k, e, e.keys, b, kv_head, e.read.k, start, keys);
  load_tile<D, R>(t.v, e, e.keys, b, kv_head, e.read.v, start, values);
  const int first_tile = max(start - e.shift, 0) / tile<R> * tile<R>;  // of the first query that sees one of these keys
  float4 dk[R][quads<D>] = {}, dv[R][quads<D>] = {};
  for (int head = kv_head * e.group; head < (kv_head + 1) * e.group; ++head) {
    const std::int64_t rows = (static_cast<std::int64_t>(b) * e.heads + head) * e.queries.count;
    for (int first = first_tile; first < e.queries.count; first += tile<R>) {
      if constexpr (Hidden) {
        const int row = first + static_cast<int>(threadIdx.x);
        const bool sees = threadIdx.x < tile<R> && row < e.queries.count && e.first_seen(t.starts, b, row) < start + tile<R>;
        if (__syncthreads_or(sees) == 0) continue;
      } else {
        __syncthreads();
      }
      load_tile<D, R>(t.q, e, e.queries, b, head, e.read.q, first, queries);
      load_tile<D, R>(t.dout, e, e.queries, b, head, e.o, first, douts);
      __syncthreads();
      float p[R][R], dp[R][R];
      product_of_rows<D, R>(queries, keys, p);
      product_of_rows<D, R>(douts, values, dp);
      gradients_of_scores<R, Hidden, Capped>(p, dp, t.lse + rows, t.delta + rows, e, t.starts, b, first, start);
      store_scores(p, p_tile);
      store_scores(dp, dp_tile);
      __syncthreads();
      add_weighted_rows_transposed<D, R>(p_tile, douts, dv);
      add_weighted_rows_transposed<D, R>(dp_tile, queries, dk);
    }
  }
  const float scale = e.scale * 0.6931471805599453F;
  store_rows<D, R>(
      dk, [scale](int) { return scale; }, t.dk, e, e.keys, b, kv_head, e.written.k, start);
  store_rows<D, R>(
      dv, [](int) { return 1.0F; }, t.dv, e, e.keys, b, kv_head, e.written.v, start);
}

/// Block (query tile<R>, head, batch): dq of its queries over all earlier keys.
template <int D, int R, bool Hidden, bool Capped>
__global__ void __launch_bounds__(tile_threads, 1) attend_grad_queries(Gradients t, Extents e) {
  extern __shared__ float4 memory[];
  constexpr int size = tile<R> * (D + 4);
  float *queries = reinterpret_cast<float*>(memory), *douts = queries + size, *keys = douts + size, *values = keys + size,
        *dp_tile = values + size;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * tile<R>, head = blockIdx.y, b = blockIdx.z,
            kv_head = head / e.group;
  const std::int64_t rows = (static_cast<std::int64_t>(b) * e.heads + head) * e.queries.count;
  load_tile<D, R>(t.q, e, e.queries, b, head, e.read.q, first, queries);
  load_tile<D, R>(t.dout, e, e.queries, b, head, e.o, first, douts);
  const int seen = min(first + tile<R> + e.shift, e.keys.count);  // keys that the last of these queries sees
  float4 dq[R][quads<D>] = {};
  const int begin = Hidden ? first_seen_by(e, t.starts, b, first, tile<R>) / tile<R> * tile<R> : 0;
  for (int start = begin; start < seen; start += tile<R>) {
    __syncthreads();
    load_tile<D, R>(t.k, e, e.keys, b, kv_head, e.read.k, start, keys);
    load_tile<D, R>(t.v, e, e.keys, b, kv_head, e.read.v, start, values);
    __syncthreads();
    float p[R][R], dp[R][R];
    product_of_rows<D, R>(queries, keys, p);
    product_of_rows<D, R>(douts, values, dp);
    gradients_of_scores<R, Hidden, Capped>(p, dp, t.lse + rows, t.delta + rows, e, t.starts, b, first, start);
    store_scores(dp, dp_tile);
    __syncthreads();
    add_weighted_rows<D, R>(dp_tile, keys, dq);
  }
  const float scale = e.scale * 0.6931471805599453F;
  store_rows<D, R>(
      dq, [scale](int) { return scale; }, t.dq, e, e.queries, b, head, e.written.q, first);
}

template <int D, int R, bool Hidden, bool Capped>
class TiledAttentionGrad final : public Kernel {
 public:
  explicit TiledAttentionGrad(const AttentionShape& shape) : shape_(shape) {
    allow_shared(attend_grad_keys<D, R, Hidden, Capped>, Shared<D, R>::bytes);
    allow_shared(attend_grad_queries<D, R, Hidden, Capped>, Shared<D, R>::bytes);
  }
  std::int64_t workspace_bytes() const override { return delta_rows(shape_) * 4; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const cudaStream_t stream = stream_of(queue);
    const Extents e(shape_);
    if (delta_rows(shape_) == 0) return;
    const Gradients t = with_delta<float>(shape_, in, out, workspace, stream);
    attend_grad_keys<D, R, Hidden, Capped>
        <<<grid_of<R>(shape_, shape_.keys, shape_.kv_heads), tile_threads, Shared<D, R>::bytes, stream>>>(t, e);
    check_launch("attention_grad, keys");
    attend_grad_queries<D, R, Hidden, Capped>
        <<<grid_of<R>(shape_, shape_.sequence, shape_.heads), tile_threads, Shared<D, R>::bytes, stream>>>(t, e);
    check_launch("attention_grad, queries");
  }

 private:
  AttentionShape shape_;
};

}  // namespace

Made make_tiled_attention_grad(const AttentionShape& shape, const KernelSettings& s) {
  return for_shape<TiledAttentionGrad, Shared>(shape, shape.kv_heads, s);
}

}  // namespace consist::cuda
