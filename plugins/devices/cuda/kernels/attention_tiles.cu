// Causal grouped-query attention on the ordinary arithmetic units: f32 products of f32 (or bf16) elements in tiles of queries by
// keys with a running softmax (Dao et al., 2022, "FlashAttention"). Every sum has a fixed order; nothing is added by
// atomics: backward has one kernel whose blocks own keys (dk, dv) and one whose blocks own queries (dq), which makes the scores
// twice.
//
// A block is 16 x 16 threads, a tile is 16·R queries and as many keys. Of a tile of scores thread (y, x) holds rows R·y … R·y + R
// − 1 and columns x, x + 16, …; of a result [16·R, dim] the same rows (or keys) and columns 4x + 64j … 4x + 64j + 3. Tiles in
// shared memory are row-major with a pitch of dim + 4 floats, so that accesses of 16 bytes of 8 neighbouring rows fall into
// different banks. R is 4; 2 where tiles of 64 would leave multiprocessors without work or do not fit into shared memory (GPUs
// other than Hopper), and for bf16.
#include "plugins/devices/cuda/kernels/attention.h"
#include "plugins/devices/cuda/kernels/launch.h"
#include "plugins/devices/cuda/kernels/numbers.cuh"

namespace consist::cuda {
namespace {

constexpr int threads = 256;
template <int R>
constexpr int tile = 16 * R;  // queries and keys
template <int R>
constexpr int score_pitch = tile<R> + 4;  // of a tile of scores

struct Extents {
  int sequence, heads, kv_heads, dim, group;
  float scale;  ///< of scores, times log2(e): exponentials are powers of two
  explicit Extents(const AttentionShape& s)
      : sequence(static_cast<int>(s.sequence)),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        dim(static_cast<int>(s.dim)),
        group(static_cast<int>(s.group())),
        scale(static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(s.dim)))) {}
  /// Element (b, position, head, 0) of a [batch, sequence, n, dim] tensor.
  __device__ std::int64_t at(int b, int position, int head, int n) const {
    return ((static_cast<std::int64_t>(b) * sequence + position) * n + head) * dim;
  }
};

template <int R>
__device__ __forceinline__ int row_of(int i) {
  return static_cast<int>(threadIdx.x) / 16 * R + i;
}
__device__ __forceinline__ int column_of(int j) {
  return static_cast<int>(threadIdx.x) % 16 + 16 * j;
}

/// Rows [first, first + 16·R) of one head into a tile<R> [16·R, D] of pitch D + 4; what lies beyond the sequence or the head is
/// 0.
template <typename T, int D, int R>
__device__ void load_tile(const T* __restrict__ tensor, const Extents& e, int b, int head, int n, int first, float* to) {
  constexpr int pitch = D + 4;
  if (e.dim == D && e.dim % per_access<T> == 0 && reinterpret_cast<std::uintptr_t>(tensor) % 16 == 0) {
    constexpr int N = per_access<T>;
    for (int i = threadIdx.x; i < tile<R> * D / N; i += threads) {
      const int row = i / (D / N), column = i % (D / N) * N;
      Pack<T, N> pack{};
      if (first + row < e.sequence) pack = load_pack<N>(tensor + e.at(b, first + row, head, n) + column);
#pragma unroll
      for (int k = 0; k < N; k += 4) {
        *reinterpret_cast<float4*>(to + row * pitch + column + k) = make_float4(
            number(pack.element[k]), number(pack.element[k + 1]), number(pack.element[k + 2]), number(pack.element[k + 3]));
      }
    }
  } else {
    for (int i = threadIdx.x; i < tile<R> * D; i += threads) {
      const int row = i / D, column = i % D;
      to[row * pitch + column] =
          first + row < e.sequence && column < e.dim ? number(tensor[e.at(b, first + row, head, n) + column]) : 0.0F;
    }
  }
}

__device__ __forceinline__ float component(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/// scores[i][j] = Σ over D of left[row i] · right[column j]
template <int D, int R>
__device__ __forceinline__ void product_of_rows(const float* left, const float* right, float (&scores)[R][R]) {
  constexpr int pitch = D + 4;
#pragma unroll
  for (int i = 0; i < R; ++i) {
#pragma unroll
    for (int j = 0; j < R; ++j) scores[i][j] = 0.0F;
  }
#pragma unroll 4
  for (int d = 0; d < D; d += 4) {
    float4 b[R];
#pragma unroll
    for (int j = 0; j < R; ++j) b[j] = *reinterpret_cast<const float4*>(right + column_of(j) * pitch + d);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const float4 a = *reinterpret_cast<const float4*>(left + row_of<R>(i) * pitch + d);
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
  constexpr int pitch = D + 4;
#pragma unroll 2
  for (int k = 0; k < tile<R>; k += 4) {
    float4 w[R];
#pragma unroll
    for (int i = 0; i < R; ++i) w[i] = *reinterpret_cast<const float4*>(weights + row_of<R>(i) * score_pitch<R> + k);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int j = 0; j < quads<D>; ++j) {
        const float4 value = *reinterpret_cast<const float4*>(values + (k + step) * pitch + threadIdx.x % 16 * 4 + 64 * j);
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
  constexpr int pitch = D + 4;
#pragma unroll 4
  for (int k = 0; k < tile<R>; ++k) {
    const Pack<float, R> w = load_pack<R>(weights + k * score_pitch<R> + row_of<R>(0));
#pragma unroll
    for (int j = 0; j < quads<D>; ++j) {
      const float4 value = *reinterpret_cast<const float4*>(values + k * pitch + threadIdx.x % 16 * 4 + 64 * j);
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
    for (int j = 0; j < R; ++j) to[row_of<R>(i) * score_pitch<R> + column_of(j)] = scores[i][j];
  }
}

/// Rows `first` + row i of one head: factor(i) · result[i], rounded.
template <typename T, int D, int R, typename Factor>
__device__ void store_rows(const float4 (&result)[R][quads<D>], Factor factor, T* tensor, const Extents& e, int b, int head,
                           int n, int first) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (first + row_of<R>(i) >= e.sequence) continue;
    T* to = tensor + e.at(b, first + row_of<R>(i), head, n);
#pragma unroll
    for (int j = 0; j < quads<D>; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int column = static_cast<int>(threadIdx.x) % 16 * 4 + 64 * j + k;
        if (column < e.dim) to[column] = rounded<T>(component(result[i][j], k) * factor(i));
      }
    }
  }
}

template <int D, int R>
constexpr int forward_shared = (2 * tile<R> * (D + 4) + tile<R> * score_pitch<R>)*4;
template <int D, int R>
constexpr int backward_shared = (4 * tile<R> * (D + 4) + 2 * tile<R> * score_pitch<R>)*4;

/// Block (query tile<R>, head, batch). Tiles of late queries see most keys and start first.
template <typename T, int D, int R>
__global__ void __launch_bounds__(threads, 2) attend(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                                                     T* __restrict__ o, float* __restrict__ lse, Extents e) {
  extern __shared__ float4 memory[];
  float *queries = reinterpret_cast<float*>(memory), *keys = queries + tile<R> * (D + 4),
        *weights = keys + tile<R> * (D + 4);  // keys, then values
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * tile<R>, head = blockIdx.y, b = blockIdx.z,
            kv_head = head / e.group;
  load_tile<T, D, R>(q, e, b, head, e.heads, first, queries);
  float4 result[R][quads<D>] = {};
  float largest[R], sum[R] = {};
#pragma unroll
  for (int i = 0; i < R; ++i) largest[i] = -INFINITY;
  for (int start = 0; start <= first; start += tile<R>) {
    __syncthreads();  // the values of the tile<R> before were read
    load_tile<T, D, R>(k, e, b, kv_head, e.kv_heads, start, keys);
    __syncthreads();
    float scores[R][R];
    product_of_rows<D, R>(queries, keys, scores);
    __syncthreads();
    load_tile<T, D, R>(v, e, b, kv_head, e.kv_heads, start, keys);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      float most = largest[i];
#pragma unroll
      for (int j = 0; j < R; ++j) {
        // Every query sees key 0, so `most` is finite from the first tile<R> on. Keys beyond the sequence lie after all its
        // queries.
        scores[i][j] = start + column_of(j) <= first + row_of<R>(i) ? scores[i][j] * e.scale : -INFINITY;
        most = fmaxf(most, scores[i][j]);
      }
#pragma unroll
      for (int distance = 8; distance > 0; distance /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, distance));
      const float shrink = exp2f(largest[i] - most);
      largest[i] = most;
      sum[i] *= shrink;
#pragma unroll
      for (int j = 0; j < R; ++j) {
        scores[i][j] = exp2f(scores[i][j] - most);
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
    store_scores(scores, weights);
    __syncthreads();
    add_weighted_rows<D, R>(weights, keys, result);
  }
  float inverse[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const float total = sum_of_lanes<16>(sum[i]);
    inverse[i] = 1.0F / total;
    const int row = first + row_of<R>(i);
    if (threadIdx.x % 16 == 0 && row < e.sequence) {
      lse[(static_cast<std::int64_t>(b) * e.heads + head) * e.sequence + row] = (largest[i] + log2f(total)) * 0.6931471805599453F;
    }
  }
  store_rows<T, D, R>(
      result, [&inverse](int i) { return inverse[i]; }, o, e, b, head, e.heads, first);
}

/// delta [batch, heads, sequence] = Σ over dim of do·o: a warp for each.
template <typename T>
__global__ void __launch_bounds__(threads)
    sum_products(const T* __restrict__ dout, const T* __restrict__ o, float* __restrict__ delta, Extents e, std::int64_t rows) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) / 32;  // (b, position, head)
  if (row >= rows) return;
  float sum = 0.0F;
  for (int i = threadIdx.x % 32; i < e.dim; i += 32) sum += number(dout[row * e.dim + i]) * number(o[row * e.dim + i]);
  sum = sum_of_lanes(sum);
  const std::int64_t head = row % e.heads, position = row / e.heads % e.sequence, b = row / e.heads / e.sequence;
  if (threadIdx.x % 32 == 0) delta[(b * e.heads + head) * e.sequence + position] = sum;
}

/// What backward reads: do, q, o [batch, sequence, heads, dim]; k, v [batch, sequence, kv_heads, dim]; lse, delta [batch, heads,
/// sequence].
template <typename T>
struct Gradients {
  const T *dout, *q, *k, *v;
  const float *lse, *delta;
  T *dq, *dk, *dv;
};

/// The tile's probabilities and the gradients of its scaled scores, from products of queries with keys and of do with values.
template <int R>
__device__ __forceinline__ void gradients_of_scores(float (&p)[R][R], float (&dp)[R][R], const float* lse, const float* delta,
                                                    const Extents& e, int first, int start) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int row = first + row_of<R>(i);
    const bool there = row < e.sequence;
    const float l = there ? lse[row] * 1.4426950408889634F : 0.0F, d = there ? delta[row] : 0.0F;
#pragma unroll
    for (int j = 0; j < R; ++j) {
      p[i][j] = there && start + column_of(j) <= row ? exp2f(p[i][j] * e.scale - l) : 0.0F;
      dp[i][j] = p[i][j] * (dp[i][j] - d);
    }
  }
}

/// Block (key tile<R>, kv head, batch): dk and dv of its keys over all query heads of the group and all later queries.
template <typename T, int D, int R>
__global__ void __launch_bounds__(threads, 1) attend_grad_keys(Gradients<T> t, Extents e) {
  extern __shared__ float4 memory[];
  constexpr int size = tile<R> * (D + 4);
  float *keys = reinterpret_cast<float*>(memory), *values = keys + size, *queries = values + size, *douts = queries + size,
        *p_tile = douts + size, *dp_tile = p_tile + tile<R> * score_pitch<R>;
  const int start = static_cast<int>(blockIdx.x) * tile<R>, kv_head = blockIdx.y, b = blockIdx.z;
  load_tile<T, D, R>(t.k, e, b, kv_head, e.kv_heads, start, keys);
  load_tile<T, D, R>(t.v, e, b, kv_head, e.kv_heads, start, values);
  float4 dk[R][quads<D>] = {}, dv[R][quads<D>] = {};
  for (int head = kv_head * e.group; head < (kv_head + 1) * e.group; ++head) {
    const std::int64_t rows = (static_cast<std::int64_t>(b) * e.heads + head) * e.sequence;
    for (int first = start; first < e.sequence; first += tile<R>) {
      __syncthreads();
      load_tile<T, D, R>(t.q, e, b, head, e.heads, first, queries);
      load_tile<T, D, R>(t.dout, e, b, head, e.heads, first, douts);
      __syncthreads();
      float p[R][R], dp[R][R];
      product_of_rows<D, R>(queries, keys, p);
      product_of_rows<D, R>(douts, values, dp);
      gradients_of_scores(p, dp, t.lse + rows, t.delta + rows, e, first, start);
      store_scores(p, p_tile);
      store_scores(dp, dp_tile);
      __syncthreads();
      add_weighted_rows_transposed<D, R>(p_tile, douts, dv);
      add_weighted_rows_transposed<D, R>(dp_tile, queries, dk);
    }
  }
  const float scale = e.scale * 0.6931471805599453F;
  store_rows<T, D, R>(
      dk, [scale](int) { return scale; }, t.dk, e, b, kv_head, e.kv_heads, start);
  store_rows<T, D, R>(
      dv, [](int) { return 1.0F; }, t.dv, e, b, kv_head, e.kv_heads, start);
}

/// Block (query tile<R>, head, batch): dq of its queries over all earlier keys.
template <typename T, int D, int R>
__global__ void __launch_bounds__(threads, 1) attend_grad_queries(Gradients<T> t, Extents e) {
  extern __shared__ float4 memory[];
  constexpr int size = tile<R> * (D + 4);
  float *queries = reinterpret_cast<float*>(memory), *douts = queries + size, *keys = douts + size, *values = keys + size,
        *dp_tile = values + size;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * tile<R>, head = blockIdx.y, b = blockIdx.z,
            kv_head = head / e.group;
  const std::int64_t rows = (static_cast<std::int64_t>(b) * e.heads + head) * e.sequence;
  load_tile<T, D, R>(t.q, e, b, head, e.heads, first, queries);
  load_tile<T, D, R>(t.dout, e, b, head, e.heads, first, douts);
  float4 dq[R][quads<D>] = {};
  for (int start = 0; start <= first; start += tile<R>) {
    __syncthreads();
    load_tile<T, D, R>(t.k, e, b, kv_head, e.kv_heads, start, keys);
    load_tile<T, D, R>(t.v, e, b, kv_head, e.kv_heads, start, values);
    __syncthreads();
    float p[R][R], dp[R][R];
    product_of_rows<D, R>(queries, keys, p);
    product_of_rows<D, R>(douts, values, dp);
    gradients_of_scores(p, dp, t.lse + rows, t.delta + rows, e, first, start);
    store_scores(dp, dp_tile);
    __syncthreads();
    add_weighted_rows<D, R>(dp_tile, keys, dq);
  }
  const float scale = e.scale * 0.6931471805599453F;
  store_rows<T, D, R>(
      dq, [scale](int) { return scale; }, t.dq, e, b, head, e.heads, first);
}

template <int R>
dim3 grid_of(const AttentionShape& s, std::int64_t heads) {
  return {blocks_of(divided_up(s.sequence, tile<R>)), static_cast<unsigned>(heads), static_cast<unsigned>(s.batch)};
}

/// More than 48 KiB of shared memory must be asked for, once per kernel and device.
template <typename Function>
void allow_shared(Function* kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "ask for shared memory for attention");
}

template <typename T, int D, int R>
class TiledAttention final : public Kernel {
 public:
  explicit TiledAttention(const AttentionShape& shape) : shape_(shape) { allow_shared(attend<T, D, R>, forward_shared<D, R>); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    if (shape_.batch * shape_.sequence == 0) return;
    attend<T, D, R><<<grid_of<R>(shape_, shape_.heads), threads, forward_shared<D, R>, stream_of(queue)>>>(
        in[0].as<T>(), in[1].as<T>(), in[2].as<T>(), out[0].as<T>(), out[1].as<float>(), Extents(shape_));
    check_launch("attention");
  }

 private:
  AttentionShape shape_;
};

template <typename T, int D, int R>
class TiledAttentionGrad final : public Kernel {
 public:
  explicit TiledAttentionGrad(const AttentionShape& shape) : shape_(shape) {
    allow_shared(attend_grad_keys<T, D, R>, backward_shared<D, R>);
    allow_shared(attend_grad_queries<T, D, R>, backward_shared<D, R>);
  }
  std::int64_t workspace_bytes() const override { return rows() * 4; }  // delta

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const cudaStream_t stream = stream_of(queue);
    const Extents e(shape_);
    if (rows() == 0) return;
    auto* delta = static_cast<float*>(workspace);
    sum_products<T>
        <<<blocks_of(divided_up(rows() * 32, threads)), threads, 0, stream>>>(in[0].as<T>(), in[4].as<T>(), delta, e, rows());
    check_launch("attention_grad, sums of do·o");
    const Gradients<T> t{in[0].as<T>(), in[1].as<T>(),  in[2].as<T>(),  in[3].as<T>(), in[5].as<float>(),
                         delta,         out[0].as<T>(), out[1].as<T>(), out[2].as<T>()};
    attend_grad_keys<T, D, R><<<grid_of<R>(shape_, shape_.kv_heads), threads, backward_shared<D, R>, stream>>>(t, e);
    check_launch("attention_grad, keys");
    attend_grad_queries<T, D, R><<<grid_of<R>(shape_, shape_.heads), threads, backward_shared<D, R>, stream>>>(t, e);
    check_launch("attention_grad, queries");
  }

 private:
  std::int64_t rows() const { return shape_.batch * shape_.sequence * shape_.heads; }
  AttentionShape shape_;
};

/// Whether tiles of 64 keep every multiprocessor busy and their kernel, which needs `shared` bytes, fits.
bool large_tiles(const AttentionShape& shape, std::int64_t heads, int shared, const KernelSettings& s) {
  int available = 0;
  check(cudaDeviceGetAttribute(&available, cudaDevAttrMaxSharedMemoryPerBlockOptin, s.device),
        "ask for the size of shared memory");
  return shared <= available && divided_up(shape.sequence, tile<4>) * heads * shape.batch >= s.multiprocessors;
}

// bf16 comes here only in shapes that cuDNN has no kernel for: small tiles are good enough, and quicker to compile.
template <typename T, int D>
Made make_forward(const AttentionShape& shape, const KernelSettings& s) {
  if constexpr (sizeof(T) == 4) {
    if (large_tiles(shape, shape.heads, forward_shared<D, 4>, s)) return std::make_unique<TiledAttention<T, D, 4>>(shape);
  }
  return std::make_unique<TiledAttention<T, D, 2>>(shape);
}
template <typename T, int D>
Made make_backward(const AttentionShape& shape, const KernelSettings& s) {
  if constexpr (sizeof(T) == 4) {
    if (large_tiles(shape, shape.kv_heads, backward_shared<D, 4>, s)) return std::make_unique<TiledAttentionGrad<T, D, 4>>(shape);
  }
  return std::make_unique<TiledAttentionGrad<T, D, 2>>(shape);
}

}  // namespace

Made make_tiled_attention(DType type, const AttentionShape& shape, const KernelSettings& s) {
  if (shape.dim > longest_head || !is_float(type)) return nullptr;
  if (type == DType::f32) return shape.dim <= 64 ? make_forward<float, 64>(shape, s) : make_forward<float, 128>(shape, s);
  return shape.dim <= 64 ? make_forward<bf16, 64>(shape, s) : make_forward<bf16, 128>(shape, s);
}
Made make_tiled_attention_grad(DType type, const AttentionShape& shape, const KernelSettings& s) {
  if (shape.dim > longest_head || !is_float(type)) return nullptr;
  if (type == DType::f32) return shape.dim <= 64 ? make_backward<float, 64>(shape, s) : make_backward<float, 128>(shape, s);
  return shape.dim <= 64 ? make_backward<bf16, 64>(shape, s) : make_backward<bf16, 128>(shape, s);
}

}  // namespace consist::cuda
