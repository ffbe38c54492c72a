// Attention's backward on the tensor cores: one kernel whose blocks own keys (dk, dv) and one whose blocks own queries (dq),
// which makes the scores twice, so that no sum needs atomics: seven products instead of five.
#include "plugins/devices/cuda/kernels/attention/attention_delta.cuh"
#include "plugins/devices/cuda/kernels/attention/attention_mma.cuh"

namespace consist::cuda {
namespace {

using namespace mma;
using Gradients = AttentionGradients<bf16>;

/// Figures of the 64 queries of a tile in shared memory: lse, delta and starts of documents.
struct Figures {
  static constexpr int bytes = 3 * tile * 4;
  std::uint32_t address;

  __device__ void begin_to_load(const Gradients& t, const Extents& e, int b, int head, int first) const {
    const std::int64_t row = (static_cast<std::int64_t>(b) * e.heads + head) * e.queries.count;
    const int i = static_cast<int>(threadIdx.x) % tile, query = first + i;
    const bool there = query < e.queries.count;
    const bool is_delta = static_cast<int>(threadIdx.x) >= tile;
    const float* of = (is_delta ? t.delta : t.lse) + row + (there ? query : 0);
    copy_4(address + threadIdx.x * 4, of, there);
    if (t.starts != nullptr && !is_delta)
      copy_4(address + (2 * tile + i) * 4, t.starts + static_cast<std::int64_t>(b) * e.queries.apart + (there ? query : 0),
             there);
  }
  __device__ float number(int index) const {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address + index * 4) : "memory");
    return value;
  }
  __device__ float lse(int i) const { return number(i); }
  __device__ float delta(int i) const { return number(tile + i); }
  __device__ int start(int i) const { return __float_as_int(number(2 * tile + i)); }
};

/// Shared memory of a block that owns keys: keys, values, two tiles of queries and two of do, and their figures.
template <int D>
constexpr int bytes_for_keys = 6 * Tile<D>::bytes + 2 * Figures::bytes;
/// Shared memory of one that owns queries: two tiles of keys and two of values.
template <int D>
constexpr int bytes_for_queries = 4 * Tile<D>::bytes;

/// Behind the last query that sees any of the keys [start, start + 64). All threads of the block must call it, once.
__device__ int end_of_queries(const Extents& e, const std::int32_t* __restrict__ starts, int b, int first, int start) {
  if (e.window == 0 && starts == nullptr) return e.queries.count;
  __shared__ int end;
  if (threadIdx.x == 0) end = 0;
  __syncthreads();
  int own = 0;
  for (int row = first + static_cast<int>(threadIdx.x); row < e.queries.count; row += mma_threads)
    if (e.first_seen(starts, b, row) < start + tile) own = row + 1;
  atomicMax(&end, own);
  __syncthreads();
  return end;
}

/// Block (key tile, kv head, batch): dk and dv of its keys over all query heads of the group and all queries that see them.
/// Scores are those of keys by queries: a warp has 16 keys.
template <int D, bool Capped>
__global__ void __launch_bounds__(mma_threads, 2) attend_grad_keys(Gradients t, Extents e) {
  extern __shared__ uint4 memory[];
  const std::uint32_t base = shared_address(memory);
  const Tile<D> keys{base}, values{base + Tile<D>::bytes};
  const int start = static_cast<int>(blockIdx.x) * tile, kv_head = blockIdx.y, b = blockIdx.z,
            lane = static_cast<int>(threadIdx.x) % 32, own = static_cast<int>(threadIdx.x) / 32 * own_rows;
  const auto queries = [&](int stage) { return Tile<D>{base + (2 + 2 * stage) * Tile<D>::bytes}; };
  const auto douts = [&](int stage) { return Tile<D>{base + (3 + 2 * stage) * Tile<D>::bytes}; };
  const auto figures = [&](int stage) { return Figures{base + 6 * Tile<D>::bytes + stage * Figures::bytes}; };
  const int first_query = max(start - e.shift, 0) / tile * tile;  // of the tile of the first query that sees one of these keys
  const int tiles = max(0, (end_of_queries(e, t.starts, b, first_query, start) - first_query + tile - 1) / tile);
  const auto begin_to_load_round = [&](int round, int stage) {
    const int head = kv_head * e.group + round / tiles, first = first_query + round % tiles * tile;
    begin_to_load(Head(t.q, e, e.queries, b, head, e.read.q), first, queries(stage));
    begin_to_load(Head(t.dout, e, e.queries, b, head, e.o), first, douts(stage));
    figures(stage).begin_to_load(t, e, b, head, first);
  };

  begin_to_load(Head(t.k, e, e.keys, b, kv_head, e.read.k), start, keys);
  begin_to_load(Head(t.v, e, e.keys, b, kv_head, e.read.v), start, values);
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  const int rounds = tiles * e.group;
  if (rounds > 0) begin_to_load_round(0, 0);
  for (int round = 0, stage = 0; round < rounds; ++round, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // this tile is there, and nobody reads the one before
    if (round + 1 < rounds) begin_to_load_round(round + 1, stage ^ 1);
    float p[8][4] = {}, dp[8][4] = {};
#pragma unroll
    for (int step = 0; step < D / 16; ++step) add_product_of_rows(rows_of(keys, own, step), queries(stage), step, p);
#pragma unroll
    for (int step = 0; step < D / 16; ++step) add_product_of_rows(rows_of(values, own, step), douts(stage), step, dp);
    const int first = first_query + round % tiles * tile;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int column = 8 * n + lane % 4 * 2 + c, query = first + column;
        const float lse = figures(stage).lse(column) * log2_e, delta = figures(stage).delta(column);
        const int first_key = e.first_seen_from(t.starts == nullptr ? e.first_position : figures(stage).start(column), query),
                  last_key = query < e.queries.count ? e.last_seen(query) : -1;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = start + own + lane / 4 + 8 * i;
          float& weight = p[n][2 * i + c];
          float& gradient = dp[n][2 * i + c];
          const float slope = capped_slope<Capped>(e, weight);
          weight = key >= first_key && key <= last_key ? power_of_2(fmaf(weight, e.scale, -lse)) : 0.0F;
          gradient = weight * (gradient - delta) * slope;
        }
      }
    }
    add_weighted_rows(p, douts(stage), dv);
    add_weighted_rows(dp, queries(stage), dk);
  }
  const float scale[2] = {e.scale * ln_2, e.scale * ln_2}, one[2] = {1.0F, 1.0F};
  wait_for_copies();
  store_rows<D>(dk, scale, t.dk, e, e.keys, b, kv_head, e.written.k, start + own);
  store_rows<D>(dv, one, t.dv, e, e.keys, b, kv_head, e.written.v, start + own);
}

/// Block (query tile, head, batch): dq of its queries over all keys that they see.
template <int D, bool Capped>
__global__ void __launch_bounds__(mma_threads, 2) attend_grad_queries(Gradients t, Extents e) {
  extern __shared__ uint4 memory[];
  const std::uint32_t base = shared_address(memory);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * tile, head = blockIdx.y, b = blockIdx.z,
            kv_head = head / e.group, lane = static_cast<int>(threadIdx.x) % 32,
            own = static_cast<int>(threadIdx.x) / 32 * own_rows;
  const Head all_keys(t.k, e, e.keys, b, kv_head, e.read.k), all_values(t.v, e, e.keys, b, kv_head, e.read.v);
  const auto keys = [&](int stage) { return Tile<D>{base + 2 * stage * Tile<D>::bytes}; };
  const auto values = [&](int stage) { return Tile<D>{base + (2 * stage + 1) * Tile<D>::bytes}; };

  begin_to_load(Head(t.q, e, e.queries, b, head, e.read.q), first, keys(0));
  begin_to_load(Head(t.dout, e, e.queries, b, head, e.o), first, values(0));
  const int seen = min(first + tile + e.shift, e.keys.count);  // keys that the last of these queries sees
  const int begin = first_seen_by(e, t.starts, b, first, tile) / tile * tile;
  wait_for_copies();
  __syncthreads();
  Left query[D / 16], dout[D / 16];
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    query[step] = rows_of(keys(0), own, step);
    dout[step] = rows_of(values(0), own, step);
  }
  __syncthreads();
  if (begin < seen) {
    begin_to_load(all_keys, begin, keys(0));
    begin_to_load(all_values, begin, values(0));
  }
  float lse[2], delta[2], dq[D / 8][4] = {};
  int first_key[2], last_key[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first + own + lane / 4 + 8 * i;
    const bool there = row < e.queries.count;
    const std::int64_t at = (static_cast<std::int64_t>(b) * e.heads + head) * e.queries.count + row;
    lse[i] = there ? t.lse[at] * log2_e : 0.0F;
    delta[i] = there ? t.delta[at] : 0.0F;
    first_key[i] = there ? e.first_seen(t.starts, b, row) : 0;
    last_key[i] = there ? e.last_seen(row) : -1;
  }
  for (int start = begin, stage = 0; start < seen; start += tile, stage ^= 1) {
    wait_for_copies();
    __syncthreads();
    if (start + tile < seen) {
      begin_to_load(all_keys, start + tile, keys(stage ^ 1));
      begin_to_load(all_values, start + tile, values(stage ^ 1));
    }
    float p[8][4] = {}, dp[8][4] = {};
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
      add_product_of_rows(query[step], keys(stage), step, p);
      add_product_of_rows(dout[step], values(stage), step, dp);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int key = start + 8 * n + lane % 4 * 2 + c % 2, i = c / 2;
        const float slope = capped_slope<Capped>(e, p[n][c]);
        const float weight = key >= first_key[i] && key <= last_key[i] ? power_of_2(fmaf(p[n][c], e.scale, -lse[i])) : 0.0F;
        dp[n][c] = weight * (dp[n][c] - delta[i]) * slope;
      }
    }
    add_weighted_rows(dp, keys(stage), dq);
  }
  const float scale[2] = {e.scale * ln_2, e.scale * ln_2};
  store_rows<D>(dq, scale, t.dq, e, e.queries, b, head, e.written.q, first + own);
}

template <int D, bool Capped>
class TensorCoreAttentionGrad final : public Kernel {
 public:
  explicit TensorCoreAttentionGrad(const AttentionShape& shape) : shape_(shape) {
    allow_shared(attend_grad_keys<D, Capped>, bytes_for_keys<D>);
    allow_shared(attend_grad_queries<D, Capped>, bytes_for_queries<D>);
  }
  std::int64_t workspace_bytes() const override { return delta_rows(shape_) * 4; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    if (delta_rows(shape_) == 0) return;
    const cudaStream_t stream = stream_of(queue);
    const Gradients t = with_delta<bf16>(shape_, in, out, workspace, stream);
    const Extents e(shape_);
    attend_grad_keys<D, Capped><<<grid_of(shape_.keys, shape_.kv_heads, shape_.batch), mma_threads, bytes_for_keys<D>, stream>>>(t, e);
    check_launch("attention_grad, keys");
    attend_grad_queries<D, Capped><<<grid_of(shape_.sequence, shape_.heads, shape_.batch), mma_threads, bytes_for_queries<D>, stream>>>(t, e);
    check_launch("attention_grad, queries");
  }

 private:
  AttentionShape shape_;
};

}  // namespace

Made make_tensor_core_attention_grad(const AttentionShape& shape) {
  return for_shape<TensorCoreAttentionGrad>(shape);
}

}  // namespace consist::cuda
