// moe_dispatch, moe_combine and their gradients: rows of tokens, sorted by expert. Pairs of a token and a choice are sorted by
// counting, in stretches of which a warp has one each: counts of stretches, sums of counts, places. Tensors of rows are read or
// written once each: whatever copies or adds rows goes token by token, through the row of each pair.
#include "plugins/devices/cuda/kernels/fp8/amax.cuh"
#include "plugins/devices/cuda/kernels/fp8/fp8.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

constexpr int stretch = 512;             // pairs of a warp
constexpr int sorted = warps * stretch;  // pairs of a block
constexpr int most_counted = 1024;       // whose counts of a block's warps lie in its shared memory

/// Pairs of tokens and experts that a dispatch sorts.
struct Choices {
  const std::int32_t* experts;
  std::int64_t pairs;
  int first, held;  ///< experts of this rank
};

/// Calls visit(pair, expert, rank, peers) for the pairs of this warp's stretch, 32 at a time, whose expert is held: `rank` of
/// `peers` pairs of the same expert among those 32. All lanes call it; __syncwarp() follows each time.
template <typename Visit>
__device__ __forceinline__ void each_pair(const Choices& choices, const Visit& visit) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t begin = std::int64_t{blockIdx.x} * sorted + threadIdx.x / 32 * stretch;
  for (int at = 0; at < stretch && begin + at < choices.pairs; at += 32) {
    const std::int64_t pair = begin + at + lane;
    int expert = pair < choices.pairs ? choices.experts[pair] - choices.first : -1;
    if (expert >= choices.held) expert = -1;
    const unsigned peers = __match_any_sync(all_lanes, expert);
    visit(pair, expert, __popc(peers & ((1U << lane) - 1)), __popc(peers));
    __syncwarp();
  }
}

/// Pairs of each expert by warp of this block: of_warps [warps, held], in shared memory. Returns those of the thread's warp. All
/// threads of the block call it, and all see the counts behind it.
__device__ std::int32_t* count_of_warp(const Choices& choices, std::int32_t* of_warps) {
  for (int i = static_cast<int>(threadIdx.x); i < warps * choices.held; i += threads) of_warps[i] = 0;
  __syncthreads();
  std::int32_t* const mine = of_warps + static_cast<int>(threadIdx.x) / 32 * choices.held;
  each_pair(choices, [&](std::int64_t, int expert, int rank, int peers) {
    if (expert >= 0 && rank == 0) mine[expert] += peers;
  });
  __syncthreads();
  return mine;
}

/// Pairs of each expert, by block: counts [blocks, held].
__global__ void __launch_bounds__(threads) count_pairs(const Choices choices, std::int32_t* __restrict__ counts) {
  extern __shared__ std::int32_t of_warps[];  // [warps, held]
  count_of_warp(choices, of_warps);
  for (int expert = static_cast<int>(threadIdx.x); expert < choices.held; expert += threads) {
    std::int32_t sum = 0;
    for (int warp = 0; warp < warps; ++warp) sum += of_warps[warp * choices.held + expert];
    counts[std::int64_t{blockIdx.x} * choices.held + expert] = sum;
  }
}

/// One block of most_counted threads. Makes of counts [blocks, held] the row of each block's first pair of each expert, of totals
/// the rows of experts and, behind them, how many pairs there are of all.
__global__ void __launch_bounds__(most_counted)
    place_blocks(std::int32_t* __restrict__ counts, int blocks, int held, std::int64_t room,
                 std::int32_t* __restrict__ rows_of_experts, float* __restrict__ overflow, std::int32_t* __restrict__ wanted) {
  __shared__ std::int32_t sums[32];
  const int expert = static_cast<int>(threadIdx.x), lane = expert % 32;
  std::int32_t total = 0;
  if (expert < held) {
#pragma unroll 8
    for (int block = 0; block < blocks; ++block) total += counts[std::int64_t{block} * held + expert];
  }
  // Where the expert's rows begin: the sum of all totals before it.
  std::int32_t end = total;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::int32_t before = __shfl_up_sync(all_lanes, end, distance);
    if (lane >= distance) end += before;
  }
  if (lane == 31) sums[expert / 32] = end;
  __syncthreads();
  for (int warp = 0; warp < expert / 32; ++warp) end += sums[warp];
  const std::int32_t begin = end - total;
  if (expert < held) {
    rows_of_experts[expert] = static_cast<std::int32_t>(max(min(room - begin, std::int64_t{total}), std::int64_t{0}));
    std::int32_t row = begin;
#pragma unroll 8
    for (int block = 0; block < blocks; ++block) {
      std::int32_t* const at = counts + std::int64_t{block} * held + expert;
      const std::int32_t count = *at;
      *at = row;
      row += count;
    }
  }
  if (expert == most_counted - 1) {
    *wanted = end;
    *overflow = static_cast<float>(max(end - room, std::int64_t{0}));
  }
}

/// Makes pairs and row_weights [room]. `first_rows` is what place_blocks() made.
__global__ void __launch_bounds__(threads)
    place_pairs(const Choices choices, const std::int32_t* __restrict__ first_rows, const std::int32_t* __restrict__ wanted,
                const float* __restrict__ weights, std::int64_t room, std::int32_t* __restrict__ pairs,
                float* __restrict__ row_weights) {
  extern __shared__ std::int32_t of_warps[];  // [warps, held]: pairs, then the row of the next one
  std::int32_t* const mine = count_of_warp(choices, of_warps);
  for (int expert = static_cast<int>(threadIdx.x); expert < choices.held; expert += threads) {
    std::int32_t row = first_rows[std::int64_t{blockIdx.x} * choices.held + expert];
    for (int warp = 0; warp < warps; ++warp) {
      std::int32_t& of_warp = of_warps[warp * choices.held + expert];
      const std::int32_t count = of_warp;
      of_warp = row;
      row += count;
    }
  }
  __syncthreads();
  each_pair(choices, [&](std::int64_t pair, int expert, int rank, int peers) {
    const std::int32_t next = expert >= 0 ? mine[expert] : 0;
    __syncwarp();
    if (expert >= 0 && rank == 0) mine[expert] = next + peers;
    if (pair >= choices.pairs) return;
    const std::int32_t row = next + rank;
    if (expert < 0 || row >= room) return;
    pairs[row] = static_cast<std::int32_t>(pair);
    row_weights[row] = weights[pair];
  });
  for (std::int64_t row = *wanted + std::int64_t{blockIdx.x} * threads + threadIdx.x; row < room;
       row += std::int64_t{gridDim.x} * threads) {
    pairs[row] = -1;
    row_weights[row] = 0;
  }
}

/// row_of, of pairs; all of it is -1 before.
__global__ void __launch_bounds__(threads)
    find_rows(const std::int32_t* __restrict__ pairs, std::int64_t rows, std::int32_t* __restrict__ row_of) {
  const std::int64_t row = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (row < rows && pairs[row] >= 0) row_of[pairs[row]] = static_cast<std::int32_t>(row);
}

/// Packs of N elements in flight in a lane.
constexpr int row_unroll = 4;

/// rows[row] = x[pairs[row] / choices], 0 where there is no pair; a warp per row. (A warp per token, which stores all its rows, wrote
/// to so many places at once that it ran at an eighth of the rate.) With `amax`, that becomes the largest magnitude of rows; it must
/// be 0 before.
template <typename T, int N, bool with_amax>
__global__ void __launch_bounds__(threads)
    spread_tokens(const T* __restrict__ x, const std::int32_t* __restrict__ pairs, T* __restrict__ rows, int choices,
                  std::int64_t room, std::int64_t channels, float* amax) {
  [[maybe_unused]] PairAmax found;
  const std::int64_t row = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (!with_amax && row >= room) return;
  const std::int64_t packs = row < room ? channels / N : 0;
  const std::int32_t pair = row < room ? pairs[row] : -1;
  const T* const from = x + std::int64_t{max(pair, 0) / choices} * channels;
  for (std::int64_t first = lane; first < packs; first += 32 * row_unroll) {
    Pack<T, N> pack[row_unroll] = {};
#pragma unroll
    for (int k = 0; k < row_unroll; ++k) {
      if (pair >= 0 && first + 32 * k < packs) pack[k] = load_pack<N>(from + (first + 32 * k) * N);
    }
#pragma unroll
    for (int k = 0; k < row_unroll; ++k) {
      if (first + 32 * k < packs) store_pack<N>(rows + row * channels + (first + 32 * k) * N, pack[k]);
      if constexpr (with_amax) found.add(pack[k]);
    }
  }
  if constexpr (with_amax) raise_amax(found.bits(), amax);
}

/// sums[token] = Σ over its slots, in their order, of their rows; a warp per token.
template <typename T, int N>
__global__ void __launch_bounds__(threads)
    sum_tokens(const T* __restrict__ rows, const std::int32_t* __restrict__ row_of, T* __restrict__ sums, std::int64_t tokens,
               int choices, std::int64_t channels) {
  const std::int64_t token = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32, lane = threadIdx.x % 32, packs = channels / N;
  if (token >= tokens) return;
  const std::int32_t* const mine = row_of + token * choices;
  for (std::int64_t pack = lane; pack < packs; pack += 32) {
    float sum[N] = {};
    for (int first = 0; first < choices; first += row_unroll) {
      Pack<T, N> row[row_unroll];
      bool there[row_unroll];
#pragma unroll
      for (int k = 0; k < row_unroll; ++k) {
        const std::int64_t at = first + k < choices ? mine[first + k] : -1;
        there[k] = at >= 0;
        if (there[k]) row[k] = load_pack<N>(rows + at * channels + pack * N);
      }
#pragma unroll
      for (int k = 0; k < row_unroll; ++k) {
        if (!there[k]) continue;
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += number(row[k].element[i]);
      }
    }
    Pack<T, N> made;
#pragma unroll
    for (int i = 0; i < N; ++i) made.element[i] = rounded<T>(sum[i]);
    store_pack<N>(sums + token * channels + pack * N, made);
  }
}

__global__ void __launch_bounds__(threads)
    take_weights(const float* __restrict__ drow_weights, const std::int32_t* __restrict__ row_of, float* __restrict__ dweights,
                 std::int64_t pairs) {
  const std::int64_t pair = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (pair < pairs) dweights[pair] = row_of[pair] < 0 ? 0.0F : drow_weights[row_of[pair]];
}

std::int64_t aligned(std::int64_t bytes) {
  return divided_up(bytes, 256) * 256;
}

void launch_find_rows(const Buffer& pairs, std::int32_t* row_of, std::int64_t all, cudaStream_t stream) {
  if (all == 0) return;
  check(cudaMemsetAsync(row_of, 0xff, static_cast<std::size_t>(all) * sizeof(std::int32_t), stream), "cudaMemsetAsync");
  const std::int64_t rows = pairs.shape[0];
  if (rows == 0) return;
  find_rows<<<blocks_of(divided_up(rows, threads)), threads, 0, stream>>>(pairs.as<std::int32_t>(), rows, row_of);
  check_launch("find_rows");
}

template <typename T, bool with_amax>
void launch_spread(const Buffer& x, const Buffer& pairs, const Buffer& rows, int choices, float* amax, cudaStream_t stream) {
  if (with_amax) clear_amax(amax, stream);
  const std::int64_t room = pairs.shape[0], channels = x.shape.last();
  if (room == 0 || channels == 0) return;
  const bool packs = in_packs(channels, per_access<T>, {x.data, rows.data});
  const auto run = packs ? spread_tokens<T, per_access<T>, with_amax> : spread_tokens<T, 1, with_amax>;
  run<<<blocks_of(divided_up(room, warps)), threads, 0, stream>>>(x.as<T>(), pairs.as<std::int32_t>(), rows.as<T>(), choices, room,
                                                                  channels, amax);
  check_launch("spread_tokens");
}

template <typename T>
void launch_sum(const Buffer& rows, const std::int32_t* row_of, const Buffer& sums, int choices, cudaStream_t stream) {
  const std::int64_t tokens = sums.shape.rows(), channels = sums.shape.last();
  if (tokens == 0 || channels == 0) return;
  const bool packs = in_packs(channels, per_access<T>, {rows.data, sums.data});
  const auto run = packs ? sum_tokens<T, per_access<T>> : sum_tokens<T, 1>;
  run<<<blocks_of(divided_up(tokens, warps)), threads, 0, stream>>>(rows.as<T>(), row_of, sums.as<T>(), tokens, choices,
                                                                    channels);
  check_launch("sum_tokens");
}

/// `with_amax`: the last output is the largest magnitude of the rows, as of CombineGrad's.
template <typename T, bool with_amax = false>
class Dispatch final : public Kernel {
 public:
  explicit Dispatch(const KernelRequest& r)
      : pairs_(r.inputs[1].shape.elements()),
        blocks_(std::max<std::int64_t>(divided_up(pairs_, sorted), 1)),
        held_(static_cast<int>(r.outputs[3].shape[0])),
        first_(r.output_origins.empty() ? 0 : static_cast<int>(r.output_origins[3][0])) {}
  std::int64_t workspace_bytes() const override { return 256 + bytes_of_counts(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    auto* const wanted = static_cast<std::int32_t*>(workspace);
    auto* const counts = reinterpret_cast<std::int32_t*>(static_cast<char*>(workspace) + 256);
    const Choices choices{in[1].as<std::int32_t>(), pairs_, first_, held_};
    const std::int64_t room = out[2].shape[0];
    const std::size_t shared = static_cast<std::size_t>(warps * held_) * sizeof(std::int32_t);
    cudaStream_t stream = stream_of(queue);
    count_pairs<<<blocks_of(blocks_), threads, shared, stream>>>(choices, counts);
    check_launch("count_pairs");
    place_blocks<<<1, most_counted, 0, stream>>>(counts, static_cast<int>(blocks_), held_, room, out[3].as<std::int32_t>(),
                                                 out[4].as<float>(), wanted);
    check_launch("place_blocks");
    place_pairs<<<blocks_of(blocks_), threads, shared, stream>>>(choices, counts, wanted, in[2].as<float>(), room,
                                                                 out[2].as<std::int32_t>(), out[1].as<float>());
    check_launch("place_pairs");
    launch_spread<T, with_amax>(in[0], out[2], out[0], static_cast<int>(in[1].shape.last()),
                                with_amax ? out[5].as<float>() : nullptr, stream);
  }

 private:
  std::int64_t bytes_of_counts() const { return aligned(blocks_ * held_ * std::int64_t{sizeof(std::int32_t)}); }
  std::int64_t pairs_, blocks_;
  int held_, first_;
};

template <typename T>
class Combine final : public Kernel {
 public:
  explicit Combine(const KernelRequest& r) : pairs_(r.inputs[3].shape.elements()) {}
  std::int64_t workspace_bytes() const override { return pairs_ * std::int64_t{sizeof(std::int32_t)}; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    auto* const row_of = static_cast<std::int32_t*>(workspace);
    launch_find_rows(in[1], row_of, pairs_, stream_of(queue));
    launch_sum<T>(in[0], row_of, out[0], static_cast<int>(in[3].shape.last()), stream_of(queue));
  }

 private:
  std::int64_t pairs_;  // of all tokens
};

template <typename T, bool with_amax = false>
class CombineGrad final : public Kernel {
 public:
  explicit CombineGrad(const KernelRequest& r)
      : choices_(r.attributes.integer("choices")) {}
  std::int64_t workspace_bytes() const override { return 0; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* /*workspace*/, NativeQueue queue) override {
    launch_spread<T, with_amax>(in[0], in[1], out[0], static_cast<int>(choices_), with_amax ? out[1].as<float>() : nullptr,
                                stream_of(queue));
  }

 private:
  std::int64_t choices_;
};

template <typename T>
class DispatchGrad final : public Kernel {
 public:
  explicit DispatchGrad(const KernelRequest& r) : pairs_(r.inputs[4].shape.elements()) {}
  std::int64_t workspace_bytes() const override { return pairs_ * std::int64_t{sizeof(std::int32_t)}; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    auto* const row_of = static_cast<std::int32_t*>(workspace);
    launch_find_rows(in[2], row_of, pairs_, stream_of(queue));
    if (pairs_ > 0) {
      take_weights<<<blocks_of(divided_up(pairs_, threads)), threads, 0, stream_of(queue)>>>(in[1].as<float>(), row_of,
                                                                                             out[1].as<float>(), pairs_);
      check_launch("take_weights");
    }
    launch_sum<T>(in[0], row_of, out[0], static_cast<int>(in[4].shape.last()), stream_of(queue));
  }

 private:
  std::int64_t pairs_;
};

Made make_moe_dispatch(const KernelRequest& r, const KernelSettings&) {
  return r.outputs[3].shape[0] <= most_counted ? by_dtype<Dispatch>(r.inputs[0].dtype, r) : nullptr;
}
Made make_moe_dispatch_grad(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<DispatchGrad>(r.inputs[0].dtype, r);
}
Made make_moe_combine(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Combine>(r.inputs[0].dtype, r);
}
Made make_moe_combine_grad(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<CombineGrad>(r.inputs[0].dtype, r);
}
Made make_moe_dispatch_amax(const KernelRequest& r, const KernelSettings& s) {
  require_fp8(s);
  const bool known = r.inputs[0].dtype == DType::bf16 && r.outputs[3].shape[0] <= most_counted;
  return known ? std::make_unique<Dispatch<bf16, true>>(r) : nullptr;
}
Made make_moe_combine_grad_amax(const KernelRequest& r, const KernelSettings& s) {
  require_fp8(s);
  return r.inputs[0].dtype == DType::bf16 ? std::make_unique<CombineGrad<bf16, true>>(r) : nullptr;
}

}  // namespace

CONSIST_KERNEL(moe_dispatch, make_moe_dispatch);
CONSIST_KERNEL(moe_dispatch_grad, make_moe_dispatch_grad);
CONSIST_KERNEL(moe_combine, make_moe_combine);
CONSIST_KERNEL(moe_combine_grad, make_moe_combine_grad);
CONSIST_KERNEL(moe_dispatch_amax, make_moe_dispatch_amax);
CONSIST_KERNEL(moe_combine_grad_amax, make_moe_combine_grad_amax);

}  // namespace consist::cuda
