// moe_send, moe_return and their gradients: tokens packed for the ranks that have their experts. Locally a rank packs
// [1, ranks, room, channels]. A block per rank gives its tokens their places, in the order of tokens; rows are moved by a warp each.
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

constexpr int placing = 1024;  // threads that place the tokens for a rank

/// slots [tokens, ranks] and token_of [ranks, room] of rank blockIdx.x, which has experts [held · rank, held · (rank + 1)). `overflow`
/// is 0 before; numbers of tokens add up exactly.
__global__ void __launch_bounds__(placing)
    place_tokens(const std::int32_t* __restrict__ experts, std::int64_t tokens, int choices, int held, std::int64_t room,
                 std::int32_t* __restrict__ slots, std::int32_t* __restrict__ token_of, float* __restrict__ overflow) {
  __shared__ std::int32_t of_warps[placing / 32];
  const int rank = static_cast<int>(blockIdx.x), ranks = static_cast<int>(gridDim.x), lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32;
  std::int32_t* const mine = token_of + rank * room;
  std::int64_t placed = 0;  // of the tokens before this stretch
  for (std::int64_t first = 0; first < tokens; first += placing) {
    const std::int64_t token = first + threadIdx.x;
    bool goes = false;
    for (int slot = 0; token < tokens && slot < choices; ++slot) goes = goes || experts[token * choices + slot] / held == rank;
    const unsigned going = __ballot_sync(all_lanes, goes);
    if (lane == 0) of_warps[warp] = __popc(going);
    __syncthreads();
    std::int64_t place = placed + __popc(going & ((1U << lane) - 1));
    for (int w = 0; w < placing / 32; ++w) {
      if (w < warp) place += of_warps[w];
      placed += of_warps[w];
    }
    if (token < tokens) {
      const bool fits = goes && place < room;
      slots[token * ranks + rank] = fits ? static_cast<std::int32_t>(place) : -1;
      if (fits) mine[place] = static_cast<std::int32_t>(token);
    }
    __syncthreads();  // of_warps is written again
  }
  for (std::int64_t place = placed + threadIdx.x; place < room; place += placing) mine[place] = -1;
  if (threadIdx.x == 0 && placed > room) atomicAdd(overflow, static_cast<float>(placed - room));
}

/// token_of [ranks, room], of slots; all of it is -1 before.
__global__ void __launch_bounds__(threads)
    find_tokens(const std::int32_t* __restrict__ slots, std::int64_t tokens, int ranks, std::int64_t room,
                std::int32_t* __restrict__ token_of) {
  const std::int64_t at = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= tokens * ranks || slots[at] < 0) return;
  token_of[at % ranks * room + slots[at]] = static_cast<std::int32_t>(at / ranks);
}

/// rows[place] = x[token_of[place]], 0 for -1; a warp per place.
template <typename T, int N>
__global__ void __launch_bounds__(threads)
    pack_rows(const T* __restrict__ x, const std::int32_t* __restrict__ token_of, T* __restrict__ rows, std::int64_t places,
              std::int64_t channels) {
  const std::int64_t place = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32, lane = threadIdx.x % 32, packs = channels / N;
  if (place >= places) return;
  const std::int64_t token = token_of[place];
  for (std::int64_t pack = lane; pack < packs; pack += 32)
    store_pack<N>(rows + place * channels + pack * N, token < 0 ? Pack<T, N>{} : load_pack<N>(x + token * channels + pack * N));
}

/// The choices of the tokens in each place: experts (-1 for none) and weights.
__global__ void __launch_bounds__(threads)
    pack_choices(const std::int32_t* __restrict__ experts, const float* __restrict__ weights, const std::int32_t* __restrict__ token_of,
                 std::int32_t* __restrict__ sent_experts, float* __restrict__ sent_weights, std::int64_t places, int choices) {
  const std::int64_t at = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= places * choices) return;
  const std::int64_t token = token_of[at / choices];
  sent_experts[at] = token < 0 ? -1 : experts[token * choices + at % choices];
  sent_weights[at] = token < 0 ? 0.0F : weights[token * choices + at % choices];
}

/// sums[token] = Σ over ranks, in their order, of its rows; a warp per token.
template <typename T, int N>
__global__ void __launch_bounds__(threads)
    sum_slots(const T* __restrict__ rows, const std::int32_t* __restrict__ slots, T* __restrict__ sums, std::int64_t tokens, int ranks,
              std::int64_t room, std::int64_t channels) {
  const std::int64_t token = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32, lane = threadIdx.x % 32, packs = channels / N;
  if (token >= tokens) return;
  for (std::int64_t pack = lane; pack < packs; pack += 32) {
    float sum[N] = {};
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t slot = slots[token * ranks + rank];
      if (slot < 0) continue;
      const Pack<T, N> row = load_pack<N>(rows + (rank * room + slot) * channels + pack * N);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += number(row.element[i]);
    }
    Pack<T, N> made;
#pragma unroll
    for (int i = 0; i < N; ++i) made.element[i] = rounded<T>(sum[i]);
    store_pack<N>(sums + token * channels + pack * N, made);
  }
}

/// dweights [tokens, choices]: of each choice what came back from the rank of its expert.
__global__ void __launch_bounds__(threads)
    take_sent_weights(const float* __restrict__ dsent_weights, const std::int32_t* __restrict__ slots,
                      const std::int32_t* __restrict__ experts, float* __restrict__ dweights, std::int64_t tokens, int choices, int ranks, int held, std::int64_t room) {
  const std::int64_t pair = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (pair >= tokens * choices) return;
  const std::int64_t rank = experts[pair] / held, slot = slots[pair / choices * ranks + rank];
  dweights[pair] = slot < 0 ? 0.0F : dsent_weights[(rank * room + slot) * choices + pair % choices];
}

template <typename T>
void launch_pack(const Buffer& x, const std::int32_t* token_of, const Buffer& rows, cudaStream_t stream) {
  const std::int64_t places = rows.shape.rows(), channels = rows.shape.last();
  if (places == 0 || channels == 0) return;
  const bool packs = in_packs(channels, per_access<T>, {x.data, rows.data});
  const auto run = packs ? pack_rows<T, per_access<T>> : pack_rows<T, 1>;
  run<<<blocks_of(divided_up(places, warps)), threads, 0, stream>>>(x.as<T>(), token_of, rows.as<T>(), places, channels);
  check_launch("pack_rows");
}

template <typename T>
void launch_sum_slots(const Buffer& rows, const Buffer& slots, const Buffer& sums, cudaStream_t stream) {
  const std::int64_t tokens = slots.shape.rows(), channels = rows.shape.last();
  if (tokens == 0 || channels == 0) return;
  const bool packs = in_packs(channels, per_access<T>, {rows.data, sums.data});
  const auto run = packs ? sum_slots<T, per_access<T>> : sum_slots<T, 1>;
  run<<<blocks_of(divided_up(tokens, warps)), threads, 0, stream>>>(rows.as<T>(), slots.as<std::int32_t>(), sums.as<T>(), tokens,
                                                                    static_cast<int>(slots.shape.last()), rows.shape[2], channels);
  check_launch("sum_slots");
}

template <typename T>
class Send final : public Kernel {
 public:
  explicit Send(const KernelRequest& r)
      : ranks_(r.outputs[0].shape[1]), room_(r.outputs[0].shape[2]), held_(r.attributes.integer("experts") / ranks_) {}
  std::int64_t workspace_bytes() const override { return ranks_ * room_ * std::int64_t{sizeof(std::int32_t)}; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    auto* const token_of = static_cast<std::int32_t*>(workspace);
    const std::int64_t tokens = in[1].shape.rows(), places = ranks_ * room_;
    const int choices = static_cast<int>(in[1].shape.last());
    cudaStream_t stream = stream_of(queue);
    cuda::check(cudaMemsetAsync(out[4].data, 0, sizeof(float), stream), "cudaMemsetAsync");
    place_tokens<<<blocks_of(ranks_), placing, 0, stream>>>(in[1].as<std::int32_t>(), tokens, choices, static_cast<int>(held_), room_,
                                                            out[3].as<std::int32_t>(), token_of, out[4].as<float>());
    check_launch("place_tokens");
    launch_pack<T>(in[0], token_of, out[0], stream);
    pack_choices<<<blocks_of(divided_up(places * choices, threads)), threads, 0, stream>>>(
        in[1].as<std::int32_t>(), in[2].as<float>(), token_of, out[1].as<std::int32_t>(), out[2].as<float>(), places, choices);
    check_launch("pack_choices");
  }

 private:
  std::int64_t ranks_, room_, held_;
};

template <typename T>
class SendGrad final : public Kernel {
 public:
  explicit SendGrad(const KernelRequest& r) : held_(static_cast<int>(r.attributes.integer("experts") / r.inputs[2].shape.last())) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t tokens = in[2].shape.rows();
    const int choices = static_cast<int>(in[3].shape.last()), ranks = static_cast<int>(in[2].shape.last());
    if (tokens == 0) return;
    launch_sum_slots<T>(in[0], in[2], out[0], stream_of(queue));
    take_sent_weights<<<blocks_of(divided_up(tokens * choices, threads)), threads, 0, stream_of(queue)>>>(
        in[1].as<float>(), in[2].as<std::int32_t>(), in[3].as<std::int32_t>(), out[1].as<float>(), tokens, choices, ranks, held_,
        in[0].shape[2]);
    check_launch("take_sent_weights");
  }

 private:
  int held_;
};

template <typename T>
class Return final : public Kernel {
 public:
  explicit Return(const KernelRequest& /*r*/) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    launch_sum_slots<T>(in[0], in[1], out[0], stream_of(queue));
  }
};

template <typename T>
class ReturnGrad final : public Kernel {
 public:
  explicit ReturnGrad(const KernelRequest& r) : bytes_(r.outputs[0].shape.rows() * std::int64_t{sizeof(std::int32_t)}) {}
  std::int64_t workspace_bytes() const override { return bytes_; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    auto* const token_of = static_cast<std::int32_t*>(workspace);
    const std::int64_t tokens = in[1].shape.rows(), slots = in[1].shape.elements();
    cuda::check(cudaMemsetAsync(token_of, 0xff, static_cast<std::size_t>(bytes_), stream_of(queue)), "cudaMemsetAsync");
    if (slots > 0) {
      find_tokens<<<blocks_of(divided_up(slots, threads)), threads, 0, stream_of(queue)>>>(
          in[1].as<std::int32_t>(), tokens, static_cast<int>(in[1].shape.last()), out[0].shape[2], token_of);
      check_launch("find_tokens");
    }
    launch_pack<T>(in[0], token_of, out[0], stream_of(queue));
  }

 private:
  std::int64_t bytes_;
};

Made make_moe_send(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Send>(r.inputs[0].dtype, r);
}
Made make_moe_send_grad(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<SendGrad>(r.inputs[0].dtype, r);
}
Made make_moe_return(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Return>(r.inputs[0].dtype, r);
}
Made make_moe_return_grad(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<ReturnGrad>(r.inputs[0].dtype, r);
}

}  // namespace

CONSIST_KERNEL(moe_send, make_moe_send);
CONSIST_KERNEL(moe_send_grad, make_moe_send_grad);
CONSIST_KERNEL(moe_return, make_moe_return);
CONSIST_KERNEL(moe_return_grad, make_moe_return_grad);

}  // namespace consist::cuda
