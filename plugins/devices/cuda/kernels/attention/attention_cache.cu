// attention of a stretch of queries that begins at a position, beside the keys and values of a cache: a block takes one query of one head.
// Its warps go over the keys side by side, each with a running softmax of its own (Dao et al., 2022, "FlashAttention"), which the block
// brings together. The position lies in the device's memory, since a step that is replayed has another one. No row behind the query
// is read. Every sum has a fixed order.
#include <algorithm>
#include <string>
#include <type_traits>

#include "consist/error.h"
#include "plugins/devices/cuda/kernels/attention/attention.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

constexpr int warps = 8, threads = 32 * warps;
constexpr int most_per_lane = 8;  // elements of a head that a lane holds: head_dim up to 256

struct Extents {
  int queries, heads, group, dim, value_dim;
  std::int64_t room;    ///< keys of a sequence in memory
  std::int64_t window;  ///< keys that a query sees, itself included
  TokenStrides read;
  float scale, cap;  ///< of scores, times log2(e): exponentials are powers of two; cap 0: none
};

/// Block (query, head, batch). Lane l holds the elements l, l + 32, … of a head of either size. Plain: there is no
/// cap and both sizes are one, which saves registers.
template <typename T, int N, bool Plain>
__global__ void __launch_bounds__(threads) attend_cache(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                                                        const int* __restrict__ position, T* __restrict__ o, float* __restrict__ lse,
                                                        Extents e) {
  __shared__ float values_of[warps][32 * N], largest_of[warps], sum_of[warps];
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z),
            lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t at = *position + row, query_token = static_cast<std::int64_t>(b) * e.queries + row,
                     in_head = static_cast<std::int64_t>(head / e.group) * e.dim,
                     in_value_head = Plain ? in_head : static_cast<std::int64_t>(head / e.group) * e.value_dim;
  const int value_dim = Plain ? e.dim : e.value_dim;
  const auto holds = [&](int n) { return lane + 32 * n < e.dim; };
  const auto holds_value = [&](int n) { return lane + 32 * n < value_dim; };
  float query[N], values[N] = {};
#pragma unroll
  for (int n = 0; n < N; ++n)
    query[n] = holds(n) ? number(q[query_token * e.read.q + static_cast<std::int64_t>(head) * e.dim + lane + 32 * n]) * e.scale : 0.0F;
  float largest = -INFINITY, sum = 0.0F;
  const std::int64_t first = at + 1 > e.window ? at + 1 - e.window : 0;
  for (std::int64_t key = first + warp; key <= at; key += warps) {
    const std::int64_t token = static_cast<std::int64_t>(b) * e.room + key;
    const T *key_row = k + token * e.read.k + in_head + lane, *value_row = v + token * e.read.v + in_value_head + lane;
    float score = 0.0F;
#pragma unroll
    for (int n = 0; n < N; ++n) score += holds(n) ? query[n] * number(key_row[32 * n]) : 0.0F;
    score = sum_of_lanes(score);
    if (!Plain && e.cap > 0.0F) score = e.cap * tanhf(score / e.cap);
    const float most = fmaxf(largest, score), shrink = exp2f(largest - most), weight = exp2f(score - most);
    largest = most;
    sum = sum * shrink + weight;
#pragma unroll
    for (int n = 0; n < N; ++n) values[n] = values[n] * shrink + (holds_value(n) ? weight * number(value_row[32 * n]) : 0.0F);
  }
#pragma unroll
  for (int n = 0; n < N; ++n) values_of[warp][lane + 32 * n] = values[n];
  if (lane == 0) {
    largest_of[warp] = largest;
    sum_of[warp] = sum;
  }
  __syncthreads();
  float most = -INFINITY, total = 0.0F, share[warps];  // a warp without keys has the share 0; that of the query's own key has one
#pragma unroll
  for (int w = 0; w < warps; ++w) most = fmaxf(most, largest_of[w]);
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    share[w] = exp2f(largest_of[w] - most);
    total += share[w] * sum_of[w];
  }
  for (int i = static_cast<int>(threadIdx.x); i < value_dim; i += threads) {
    float value = 0.0F;
#pragma unroll
    for (int w = 0; w < warps; ++w) value += share[w] * values_of[w][i];
    o[(query_token * e.heads + head) * value_dim + i] = rounded<T>(value / total);
  }
  if (threadIdx.x == 0)
    lse[(static_cast<std::int64_t>(b) * e.heads + head) * e.queries + row] = (most + log2f(total)) * 0.6931471805599453F;
}

template <typename T>
class CacheAttention final : public Kernel {
 public:
  explicit CacheAttention(const KernelRequest& r) {
    const Buffer &q = r.inputs[0], &k = r.inputs[1];
    const std::int64_t dim = r.attributes.integer("head_dim"), heads = q.shape[2] / dim;
    const AttentionScores scores = attention_scores(r.attributes);
    batch_ = q.shape[0];
    extents_ = {static_cast<int>(q.shape[1]),
                static_cast<int>(heads),
                static_cast<int>(heads / (k.shape[2] / dim)),
                static_cast<int>(dim),
                static_cast<int>(value_dim_of(r.attributes)),
                k.shape[1],
                r.attributes.integer_or("window", k.shape[1]),
                {q.leading_dimension(), k.leading_dimension(), r.inputs[2].leading_dimension()},
                static_cast<float>(1.4426950408889634 * scores.scale),
                static_cast<float>(1.4426950408889634 * scores.cap)};
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    if (extents_.cap == 0.0F && extents_.value_dim == extents_.dim)
      launch_as<true>(in, out, queue);
    else
      launch_as<false>(in, out, queue);
    check_launch("attention beside a cache");
  }

 private:
  template <bool Plain>
  void launch_as(std::span<const Buffer> in, std::span<const Buffer> out, NativeQueue queue) const {
    const auto launch = [&]<int N>(std::integral_constant<int, N>) {
      const dim3 grid(static_cast<unsigned>(extents_.queries), static_cast<unsigned>(extents_.heads), static_cast<unsigned>(batch_));
      attend_cache<T, N, Plain><<<grid, threads, 0, stream_of(queue)>>>(in[0].as<T>(), in[1].as<T>(), in[2].as<T>(), in[4].as<int>(), out[0].as<T>(),
                                                               out[1].as<float>(), extents_);
    };
    const int longest = std::max(extents_.dim, extents_.value_dim);
    if (longest <= 32)
      launch(std::integral_constant<int, 1>{});
    else if (longest <= 64)
      launch(std::integral_constant<int, 2>{});
    else if (longest <= 128)
      launch(std::integral_constant<int, 4>{});
    else
      launch(std::integral_constant<int, most_per_lane>{});
  }

  Extents extents_{};
  std::int64_t batch_ = 0;
};

}  // namespace

Made make_cache_attention(const KernelRequest& r, const KernelSettings& /*s*/) {
  if (const std::int64_t dim = std::max(r.attributes.integer("head_dim"), value_dim_of(r.attributes)); dim > 32 * most_per_lane) {
    throw UsageError("attention beside a cache with heads of " + std::to_string(dim) + ": the cuda device takes heads up to " +
                     std::to_string(32 * most_per_lane) + "; use --device cpu");
  }
  return by_dtype<CacheAttention>(r.inputs[0].dtype, r);
}

}  // namespace consist::cuda
