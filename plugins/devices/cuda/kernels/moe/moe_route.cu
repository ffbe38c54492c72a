// moe_route and its gradient, one warp per token, which holds all of its logits; balance_loss and its gradient.
#include "plugins/devices/cuda/kernels/dense/column_sums.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/moe/route_scores.cuh"
#include "plugins/devices/common/forced_route.h"

namespace consist::cuda {
namespace {

constexpr int most_experts = 1024;
constexpr int most_groups = 32;  // lanes of a warp, each of which has the sum of one

/// Ids of the tokens and the experts' intervals, where a load is stated; else null.
struct StatedLoad {
  const std::int32_t* ids;
  const float* intervals;
  int orders;
  std::uint32_t router;
};

/// Statistics of a block's tokens go to partial [blocks, 2·experts + 1]. Blocks take tokens in turn, so that sums have a fixed
/// order.
template <typename T, int each, bool sigmoid>
__global__ void __launch_bounds__(threads)
    route_tokens(const T* __restrict__ logits, float* __restrict__ weights, std::int32_t* __restrict__ chosen,
                 float* __restrict__ partial, std::int64_t tokens, int experts, int choices, bool normalize, Scoring<T> scoring,
                 StatedLoad stated) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float load[each] = {}, importance[each] = {}, z = 0;
  for (std::int64_t token = std::int64_t{blockIdx.x} * warps + warp; token < tokens; token += std::int64_t{gridDim.x} * warps) {
    const Logits<each> row(logits + token * experts, experts);
    const Probabilities<each> softmax(row);
    Scores<each, sigmoid> scores(row, softmax);
#pragma unroll
    for (int i = 0; i < each; ++i) importance[i] += sigmoid ? scores.value[i] / scores.sum : scores.value[i];
    if (sigmoid && scoring.bias != nullptr) scores.add_bias(scoring.bias, experts);
    if (sigmoid && scoring.groups > 1) scores.keep_groups(experts, scoring.groups, scoring.kept_groups);
    z += softmax.log_sum * softmax.log_sum;

    kernels::ForcedRoute route{};
    if (stated.ids != nullptr)
      route = kernels::forced_route(stated.intervals, stated.orders, experts, stated.ids[token], stated.router);
    std::uint32_t taken = 0;  // a bit per expert of this lane
    int interval = -1;
    float sum = 0;
    for (int slot = 0; slot < choices; ++slot) {
      if (stated.ids != nullptr) interval = kernels::forced_interval(route, experts, slot, choices, interval);
      const auto [expert, score] = stated.ids == nullptr ? next_choice(scores, taken, experts)
                                                         : choice_of(static_cast<int>(route.owners[interval]), scores);
      sum += score;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        if (expert != lane + 32 * i) continue;
        taken |= 1U << i;
        load[i] += 1;
      }
      if (lane == 0) {
        chosen[token * choices + slot] = expert;
        weights[token * choices + slot] = score;
      }
    }
    if (normalize) {
      __syncwarp();
      for (int slot = lane; slot < choices; slot += 32) weights[token * choices + slot] /= sum;
    }
  }

  __shared__ float sums[warps][32 * each];
  float* const to = partial + std::int64_t{blockIdx.x} * (2 * experts + 1);
  const auto add_up = [&](const float(&mine)[each], float* into) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < each; ++i) sums[warp][lane + 32 * i] = mine[i];
    __syncthreads();
    for (int expert = static_cast<int>(threadIdx.x); expert < experts; expert += threads) {
      float sum = 0;
      for (int w = 0; w < warps; ++w) sum += sums[w][expert];
      into[expert] = sum;
    }
  };
  add_up(load, to);
  add_up(importance, to + experts);
  __syncthreads();
  if (lane == 0) sums[warp][0] = z;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += sums[w][0];
    to[2 * experts] = sum;
  }
}

/// dweights and dstatistics may be null.
template <typename T, int each, bool sigmoid>
__global__ void __launch_bounds__(threads)
    route_tokens_grad(const T* __restrict__ logits, const std::int32_t* __restrict__ chosen, const float* __restrict__ dweights,
                      const float* __restrict__ dstatistics, T* __restrict__ dlogits, std::int64_t tokens, int experts,
                      int choices, bool normalize) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t token = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32;
  if (token >= tokens) return;
  const Logits<each> row(logits + token * experts, experts);
  const Probabilities<each> softmax(row);
  const Scores<each, sigmoid> scores(row, softmax);
  float dp[each] = {};  // of scores
  std::uint32_t taken = 0;
  if (dweights != nullptr) {
    float sum = 0, inner = 0;
    for (int slot = 0; slot < choices; ++slot) {
      const int expert = chosen[token * choices + slot];
      const float dw = dweights[token * choices + slot];
#pragma unroll
      for (int i = 0; i < each; ++i) {
        if (expert != lane + 32 * i) continue;
        taken |= 1U << i;
        dp[i] = dw;
        sum += scores.value[i];
        inner += dw * scores.value[i];
      }
    }
    if (normalize) {
      sum = sum_of_lanes(sum);
      const float mean = sum_of_lanes(inner) / sum;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        if ((taken >> i & 1U) != 0) dp[i] = (dp[i] - mean) / sum;
      }
    }
  }
  float dz = 0;
  if (dstatistics != nullptr) {
    dz = 2 * dstatistics[2 * experts] * softmax.log_sum;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int expert = lane + 32 * i;
      if (!sigmoid && expert < experts) dp[i] += dstatistics[experts + expert];
    }
    if constexpr (sigmoid) add_gradient_of_shares(scores, dstatistics + experts, dp, experts);
  }
  float inner = 0;
#pragma unroll
  for (int i = 0; i < each; ++i) inner += softmax.p[i] * dp[i];
  if (!sigmoid) inner = sum_of_lanes(inner);
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int expert = lane + 32 * i;
    const float s = scores.value[i];
    const float d = sigmoid ? s * (1 - s) * dp[i] + softmax.p[i] * dz : s * (dp[i] - inner + dz);
    if (expert < experts) dlogits[token * experts + expert] = rounded<T>(d);
  }
}

/// Calls run(number of logits that a lane has, true for sigmoids), both as constants.
template <typename Run>
void with_logits_of_lane(int experts, bool sigmoid, const Run& run) {
  const auto by_scores = [&](auto each) { sigmoid ? run(each, std::true_type()) : run(each, std::false_type()); };
  if (experts <= 64)
    by_scores(std::integral_constant<int, 2>());
  else if (experts <= 128)
    by_scores(std::integral_constant<int, 4>());
  else if (experts <= 256)
    by_scores(std::integral_constant<int, 8>());
  else
    by_scores(std::integral_constant<int, most_experts / 32>());
}

bool by_sigmoids(const KernelRequest& r) {
  return r.attributes.integer_or("sigmoid", 0) != 0;
}
int groups_of(const KernelRequest& r) {
  return static_cast<int>(r.attributes.integer_or("groups", 1));
}

template <typename T>
class Route final : public Kernel {
 public:
  Route(const KernelRequest& r, const KernelSettings& s)
      : blocks_(std::min<std::int64_t>(divided_up(r.inputs[0].shape.rows(), warps), std::int64_t{s.multiprocessors} * 4)),
        width_(2 * r.inputs[0].shape.last() + 1),
        router_(static_cast<std::uint32_t>(r.attributes.integer_or("router", 0))),
        normalize_(r.attributes.integer("normalize") != 0),
        sigmoid_(by_sigmoids(r)),
        groups_(groups_of(r)),
        kept_groups_(static_cast<int>(r.attributes.integer_or("kept_groups", 1))) {}
  std::int64_t workspace_bytes() const override { return blocks_ * width_ * std::int64_t{sizeof(float)}; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const std::int64_t tokens = in[0].shape.rows();
    const int experts = static_cast<int>(in[0].shape.last()), choices = static_cast<int>(out[0].shape.last());
    auto* partial = static_cast<float*>(workspace);
    const StatedLoad stated{at(in, 1).as<std::int32_t>(), at(in, 2).as<float>(),
                            at(in, 2).absent() ? 0 : static_cast<int>(in[2].shape[0]), router_};
    const Scoring<T> scoring{at(in, 3).as<T>(), groups_, kept_groups_};
    if (tokens > 0) {
      with_logits_of_lane(experts, sigmoid_, [&](auto each, auto sigmoid) {
        route_tokens<T, decltype(each)::value, decltype(sigmoid)::value><<<blocks_of(blocks_), threads, 0, stream_of(queue)>>>(
            in[0].as<T>(), out[0].as<float>(), out[1].as<std::int32_t>(), partial, tokens, experts, choices, normalize_, scoring,
            stated);
      });
      check_launch("moe_route");
    }
    add_partial_sums<float>(partial, blocks_, width_, out[2].as<float>(), false, stream_of(queue));
  }

 private:
  std::int64_t blocks_, width_;
  std::uint32_t router_;
  bool normalize_, sigmoid_;
  int groups_, kept_groups_;
};

template <typename T>
class RouteGrad final : public Kernel {
 public:
  explicit RouteGrad(const KernelRequest& r)
      : normalize_(r.attributes.integer("normalize") != 0), sigmoid_(by_sigmoids(r)) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t tokens = in[0].shape.rows();
    const int experts = static_cast<int>(in[0].shape.last()), choices = static_cast<int>(in[1].shape.last());
    if (tokens == 0) return;
    with_logits_of_lane(experts, sigmoid_, [&](auto each, auto sigmoid) {
      constexpr int of_lane = decltype(each)::value;
      route_tokens_grad<T, of_lane, decltype(sigmoid)::value><<<blocks_of(divided_up(tokens, warps)), threads, 0, stream_of(queue)>>>(
          in[0].as<T>(), in[1].as<std::int32_t>(), at(in, 2).as<float>(), at(in, 3).as<float>(), out[0].as<T>(), tokens, experts,
          choices, normalize_);
    });
    check_launch("moe_route_grad");
  }

 private:
  bool normalize_, sigmoid_;
};

/// Adds to a row of counts, which is [experts] at least.
__global__ void __launch_bounds__(threads) add_choices(const float* __restrict__ statistics, float* __restrict__ row, int experts) {
  for (int expert = static_cast<int>(threadIdx.x); expert < experts; expert += threads) row[expert] += statistics[expert];
}

class CountChoices final : public Kernel {
 public:
  explicit CountChoices(const KernelRequest& r) : row_(r.attributes.integer("row")) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    float* const counts = out[0].as<float>();
    if (at(in, 1).absent()) {
      cuda::check(cudaMemsetAsync(counts, 0, static_cast<std::size_t>(out[0].shape.elements()) * sizeof(float), stream_of(queue)),
            "cudaMemsetAsync");
    }
    add_choices<<<1, threads, 0, stream_of(queue)>>>(in[0].as<float>(), counts + row_ * out[0].shape.last(),
                                                     static_cast<int>(in[0].shape[0] / 2));
    check_launch("count_choices");
  }

 private:
  std::int64_t row_;
};

/// Factor of a loss of routers: the number of targets that count, where the data say so.
__device__ __forceinline__ double factor_of(const float* count) {
  return count == nullptr ? 1 : static_cast<double>(*count);
}

__global__ void __launch_bounds__(threads) sum_balance(const float* __restrict__ statistics, const float* __restrict__ count,
                                                       float* __restrict__ loss, int experts, double balance, double z) {
  double sum = 0;
  for (int expert = static_cast<int>(threadIdx.x); expert < experts; expert += threads)
    sum += static_cast<double>(statistics[expert]) * static_cast<double>(statistics[experts + expert]);
  sum = sum_of_block(sum);
  if (threadIdx.x == 0)
    *loss = static_cast<float>(factor_of(count) * (balance * sum + z * static_cast<double>(statistics[2 * experts])));
}

__global__ void __launch_bounds__(threads) grade_balance(const float* __restrict__ statistics, const float* __restrict__ count,
                                                         float* __restrict__ dstatistics, int experts, double balance, double z) {
  const double factor = factor_of(count);
  for (int i = static_cast<int>(threadIdx.x); i <= 2 * experts; i += threads) {
    dstatistics[i] = i < experts        ? 0.0F
                     : i == 2 * experts ? static_cast<float>(factor * z)
                                        : static_cast<float>(factor * balance * static_cast<double>(statistics[i - experts]));
  }
}

template <bool gradient>
class Balance final : public Kernel {
 public:
  explicit Balance(const KernelRequest& r) : balance_(r.attributes.real("balance")), z_(r.attributes.real("z")) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const int experts = static_cast<int>(in[0].shape[0] / 2);
    const auto run = gradient ? grade_balance : sum_balance;
    run<<<1, threads, 0, stream_of(queue)>>>(in[0].as<float>(), at(in, 1).as<float>(), out[0].as<float>(), experts, balance_, z_);
    check_launch("balance_loss");
  }

 private:
  double balance_, z_;
};

Made make_moe_route(const KernelRequest& r, const KernelSettings& s) {
  return r.inputs[0].shape.last() <= most_experts && groups_of(r) <= most_groups ? by_dtype<Route>(r.inputs[0].dtype, r, s) : nullptr;
}
Made make_moe_route_grad(const KernelRequest& r, const KernelSettings&) {
  return r.inputs[0].shape.last() <= most_experts ? by_dtype<RouteGrad>(r.inputs[0].dtype, r) : nullptr;
}
Made make_count_choices(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<CountChoices>(r);
}
Made make_balance_loss(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<Balance<false>>(r);
}
Made make_balance_loss_grad(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<Balance<true>>(r);
}

}  // namespace

CONSIST_KERNEL(moe_route, make_moe_route);
CONSIST_KERNEL(moe_route_grad, make_moe_route_grad);
CONSIST_KERNEL(count_choices, make_count_choices);
CONSIST_KERNEL(balance_loss, make_balance_loss);
CONSIST_KERNEL(balance_loss_grad, make_balance_loss_grad);

}  // namespace consist::cuda
