// Attention's forward kernel on the tensor cores: a block goes over the keys of its queries with a running softmax (Dao et al.,
// 2022, "FlashAttention").
#include "plugins/devices/cuda/kernels/attention/attention_mma.cuh"

namespace consist::cuda {
namespace {

using namespace mma;

/// Shared memory of a block: queries, two tiles of keys and two of values.
template <int D>
constexpr int shared_bytes = 5 * Tile<D>::bytes;

/// The keys that a warp's 16 queries see, of which a lane has two.
struct Rows {
  int first_key[2], last_key[2];  ///< that each of the lane's two queries sees
  int all_see_from, all_see_to;   ///< keys between which nothing is hidden from any of the warp's

  __device__ Rows(const Extents& e, const std::int32_t* __restrict__ starts, int b, int first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = min(first + lane / 4 + 8 * i, e.queries.count - 1);
      first_key[i] = e.first_seen(starts, b, row);
      last_key[i] = e.last_seen(row);
    }
    all_see_from = most_of_warp(max(first_key[0], first_key[1]));
    all_see_to = least_of_warp(min(last_key[0], last_key[1]));
  }
  /// Hides the keys [start, start + 64) that a query does not see.
  __device__ void hide(float (&scores)[8][4], int start) const {
    if (start >= all_see_from && start + tile - 1 <= all_see_to) return;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int key = start + 8 * n + static_cast<int>(threadIdx.x) % 4 * 2 + c % 2;
        if (key < first_key[c / 2] || key > last_key[c / 2]) scores[n][c] = -INFINITY;
      }
    }
  }
};

/// The running softmax of a lane's two queries. `sum` is over the lane's own columns.
struct Softmax {
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};

  /// Scores become weights; `result` so far is brought to their base.
  template <int D>
  __device__ void add(float (&scores)[8][4], float scale, float (&result)[D / 8][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float most = -INFINITY;
#pragma unroll
      for (int n = 0; n < 8; ++n) most = fmaxf(most, fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 2));
      most = fmaxf(largest[i], most * scale);
      const float base = most == -INFINITY ? 0.0F : most;  // until a query has seen a key
      const float shrink = power_of_2(largest[i] - base);
      largest[i] = most;
      sum[i] *= shrink;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int c = 2 * i; c < 2 * i + 2; ++c) {
          scores[n][c] = power_of_2(fmaf(scores[n][c], scale, -base));
          sum[i] += scores[n][c];
        }
      }
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        result[n][2 * i] *= shrink;
        result[n][2 * i + 1] *= shrink;
      }
    }
  }
};

/// Block (query tile, head, batch). Tiles of late queries see most keys and start first.
template <int D, bool Capped>
__global__ void __launch_bounds__(mma_threads, 2)
    attend(const bf16* __restrict__ q, const bf16* __restrict__ k, const bf16* __restrict__ v, bf16* __restrict__ o,
           float* __restrict__ lse, const std::int32_t* __restrict__ starts, Extents e) {
  extern __shared__ uint4 memory[];
  const std::uint32_t base = shared_address(memory);
  const Tile<D> queries{base};
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * tile, head = blockIdx.y, b = blockIdx.z,
            kv_head = head / e.group, lane = static_cast<int>(threadIdx.x) % 32,
            own = first + static_cast<int>(threadIdx.x) / 32 * own_rows;
  const Head all_keys(k, e, e.keys, b, kv_head, e.read.k), all_values(v, e, e.keys, b, kv_head, e.read.v);
  const auto keys = [&](int stage) { return Tile<D>{base + (1 + 2 * stage) * Tile<D>::bytes}; };
  const auto values = [&](int stage) { return Tile<D>{base + (2 + 2 * stage) * Tile<D>::bytes}; };

  begin_to_load(Head(q, e, e.queries, b, head, e.read.q), first, queries);
  const int seen = min(first + tile + e.shift, e.keys.count);  // keys that the last of these queries sees
  const int begin = first_seen_by(e, starts, b, first, tile) / tile * tile;
  if (begin < seen) {
    begin_to_load(all_keys, begin, keys(0));
    begin_to_load(all_values, begin, values(0));
  }
  const Rows rows(e, starts, b, own);
  Softmax softmax;
  float result[D / 8][4] = {};
  Left query[D / 16];
  wait_for_copies();
  __syncthreads();
#pragma unroll
  for (int step = 0; step < D / 16; ++step) query[step] = rows_of(queries, own - first, step);

  for (int start = begin, stage = 0; start < seen; start += tile, stage ^= 1) {
    if (start > begin) {
      wait_for_copies();
      __syncthreads();  // this tile is there, and nobody reads the one before
    }
    if (start + tile < seen) {
      begin_to_load(all_keys, start + tile, keys(stage ^ 1));
      begin_to_load(all_values, start + tile, values(stage ^ 1));
    }
    float scores[8][4] = {};
#pragma unroll
    for (int step = 0; step < D / 16; ++step) add_product_of_rows(query[step], keys(stage), step, scores);
    if constexpr (Capped) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) scores[n][c] = e.capped(scores[n][c]);
      }
    }
    rows.hide(scores, start);
    softmax.add<D>(scores, e.scale, result);
    add_weighted_rows(scores, values(stage), result);
  }

  float inverse[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float total = sum_of_lanes<4>(softmax.sum[i]);
    inverse[i] = total == 0.0F ? 0.0F : 1.0F / total;
    const int row = own + lane / 4 + 8 * i;
    if (lane % 4 == 0 && row < e.queries.count)
      lse[(static_cast<std::int64_t>(b) * e.heads + head) * e.queries.count + row] = (softmax.largest[i] + log2f(total)) * ln_2;
  }
  store_rows<D>(result, inverse, o, e, e.queries, b, head, e.o, own);
}

template <int D, bool Capped>
class TensorCoreAttention final : public Kernel {
 public:
  explicit TensorCoreAttention(const AttentionShape& shape) : shape_(shape) { allow_shared(attend<D, Capped>, shared_bytes<D>); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    if (shape_.batch * shape_.sequence == 0) return;
    attend<D, Capped><<<grid_of(shape_.sequence, shape_.heads, shape_.batch), mma_threads, shared_bytes<D>, stream_of(queue)>>>(
        in[0].as<bf16>(), in[1].as<bf16>(), in[2].as<bf16>(), out[0].as<bf16>(), out[1].as<float>(),
        shape_.documents ? in[3].as<std::int32_t>() : nullptr, Extents(shape_));
    check_launch("attention");
  }

 private:
  AttentionShape shape_;
};

}  // namespace

Made make_tensor_core_attention(const AttentionShape& shape) {
  return for_shape<TensorCoreAttention>(shape);
}

}  // namespace consist::cuda
