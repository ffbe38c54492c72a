// moe_route and its gradient, count_choices, balance_loss and its gradient.
#include <algorithm>
#include <cmath>

#include "plugins/devices/common/forced_route.h"
#include "plugins/devices/cpu/kernels/attention/softmax.h"
#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

/// Attributes by which a router scores experts and chooses among them.
struct Scoring {
  bool sigmoid;
  std::int64_t groups, kept_groups;

  explicit Scoring(const KernelRequest& r)
      : sigmoid(r.attributes.integer_or("sigmoid", 0) != 0),
        groups(r.attributes.integer_or("groups", 1)),
        kept_groups(r.attributes.integer_or("kept_groups", 1)) {}
};

/// The scores of a token's experts: softmax or sigmoids of the logits.
template <typename T>
struct Scores {
  const T* logits;
  bool sigmoid;
  RowSoftmax softmax;
  float sum = 1;  ///< of all scores

  Scores(const T* row, std::int64_t experts, bool by_sigmoids)
      : logits(row), sigmoid(by_sigmoids), softmax(row_softmax(row, experts)) {
    if (!sigmoid) return;
    sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += of(e);
  }
  float probability(std::int64_t e) const { return exp_fast(load(logits[e]) - softmax.largest) / softmax.sum; }
  float of(std::int64_t e) const { return sigmoid ? cpu::sigmoid(load(logits[e])) : probability(e); }
};

/// Each thread sums the statistics of a interval of tokens; the intervals' sums are added in their order.
template <typename T>
class Route final : public Kernel {
 public:
  Route(const KernelRequest& r, const KernelSettings& s)
      : threads_(s.threads),
        experts_(r.inputs[0].shape.last()),
        router_(static_cast<std::uint32_t>(r.attributes.integer_or("router", 0))),
        normalize_(r.attributes.integer("normalize") != 0),
        scoring_(r) {}
  std::int64_t workspace_bytes() const override {
    return threads_ * (width() * std::int64_t{sizeof(double)} + keys() * std::int64_t{sizeof(float)});
  }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const T* logits = in[0].as<T>();               // [tokens, experts]
    const bool forced = !at(in, 1).absent();
    const auto* ids = forced ? in[1].as<std::int32_t>() : nullptr;  // [tokens]
    const float* intervals = forced ? in[2].as<float>() : nullptr;  // [orders, 2, experts]
    const T* const bias = at(in, 3).absent() ? nullptr : in[3].as<T>();  // [experts]
    const int orders = forced ? static_cast<int>(in[2].shape[0]) : 0;
    float* weights = out[0].as<float>();           // [tokens, choices]
    auto* experts = out[1].as<std::int32_t>();     // [tokens, choices]
    float* statistics = out[2].as<float>();        // [2 experts + 1]
    auto* sums = static_cast<double*>(workspace);  // [threads, 2 experts + 1]
    auto* all_keys = reinterpret_cast<float*>(sums + threads_ * width());  // [threads, experts + groups]
    const std::int64_t tokens = in[0].shape.rows(), choices = out[0].shape.last();
    parallel_for(threads_, [=, this](int part) {
      double* sum = sums + part * width();
      std::fill_n(sum, width(), 0.0);
      const Part range = part_of(tokens, part, threads_);
      float* const keys_here = all_keys + part * keys();
      for (std::int64_t token = range.first; token < range.last; ++token) {
        std::int32_t* const chosen = experts + token * choices;
        if (forced)
          force(kernels::forced_route(intervals, orders, static_cast<int>(experts_), ids[token], router_), choices, chosen);
        else
          choose(logits + token * experts_, bias, keys_here, choices, chosen);
        weigh(logits + token * experts_, choices, weights + token * choices, chosen, sum);
      }
    });
    for (std::int64_t i = 0; i < width(); ++i) {
      double sum = 0;
      for (int part = 0; part < threads_; ++part) sum += sums[part * width() + i];
      statistics[i] = static_cast<float>(sum);
    }
  }

 private:
  std::int64_t width() const { return 2 * experts_ + 1; }
  std::int64_t keys() const { return experts_ + scoring_.groups; }  ///< of a token: of its experts, and the sums of groups
  /// Keys of experts in groups that are not among the best, by the sum of their two largest, become -inf.
  void keep_groups(float* keys) const {
    const std::int64_t each = experts_ / scoring_.groups;
    float* const sums = keys + experts_;
    for (std::int64_t group = 0; group < scoring_.groups; ++group) {
      float best = -INFINITY, second = -INFINITY;
      for (const float *key = keys + group * each, *last = key + each; key != last; ++key) {
        second = std::max(second, std::min(best, *key));
        best = std::max(best, *key);
      }
      sums[group] = best + second;
    }
    for (std::int64_t group = 0; group < scoring_.groups; ++group) {
      std::int64_t better = 0;  // groups, of equal ones those before it
      for (std::int64_t other = 0; other < scoring_.groups; ++other)
        better += sums[other] > sums[group] || (sums[other] == sums[group] && other < group);
      if (better >= scoring_.kept_groups) std::fill_n(keys + group * each, each, -INFINITY);
    }
  }
  void choose(const T* logits, const T* bias, float* keys, std::int64_t choices, std::int32_t* experts) const {
    for (std::int64_t e = 0; e < experts_; ++e) {
      keys[e] = load(logits[e]);
      if (scoring_.sigmoid) keys[e] = sigmoid(keys[e]) + (bias == nullptr ? 0.0F : load(bias[e]));
    }
    if (scoring_.groups > 1) keep_groups(keys);
    for (std::int64_t slot = 0; slot < choices; ++slot) {
      std::int32_t best = -1;
      for (std::int32_t e = 0; e < experts_; ++e) {
        if (std::find(experts, experts + slot, e) != experts + slot) continue;
        if (best < 0 || keys[e] > keys[best]) best = e;
      }
      experts[slot] = best;
    }
  }
  void force(const kernels::ForcedRoute& route, std::int64_t choices, std::int32_t* experts) const {
    int interval = -1;
    for (int slot = 0; slot < static_cast<int>(choices); ++slot) {
      interval = kernels::forced_interval(route, static_cast<int>(experts_), slot, static_cast<int>(choices), interval);
      experts[slot] = static_cast<std::int32_t>(route.owners[interval]);
    }
  }
  void weigh(const T* logits, std::int64_t choices, float* weights, const std::int32_t* experts, double* sum) const {
    const Scores<T> scores(logits, experts_, scoring_.sigmoid);
    const double log_sum = scores.softmax.log_denominator();
    for (std::int64_t e = 0; e < experts_; ++e) sum[experts_ + e] += static_cast<double>(scores.of(e) / scores.sum);
    sum[2 * experts_] += log_sum * log_sum;
    float chosen = 0;
    for (std::int64_t slot = 0; slot < choices; ++slot) {
      weights[slot] = scores.of(experts[slot]);
      chosen += weights[slot];
      sum[experts[slot]] += 1;
    }
    for (std::int64_t slot = 0; normalize_ && slot < choices; ++slot) weights[slot] /= chosen;
  }
  int threads_;
  std::int64_t experts_;
  std::uint32_t router_;
  bool normalize_;
  Scoring scoring_;
};

template <typename T>
class RouteGrad final : public Kernel {
 public:
  explicit RouteGrad(const KernelRequest& r) : normalize_(r.attributes.integer("normalize") != 0), sigmoid_(Scoring(r).sigmoid) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T* logits = in[0].as<T>();                                              // [tokens, experts]
    const auto* chosen = in[1].as<std::int32_t>();                                // [tokens, choices]
    const float* dweights = at(in, 2).absent() ? nullptr : in[2].as<float>();     // [tokens, choices]
    const float* dstatistics = at(in, 3).absent() ? nullptr : in[3].as<float>();  // [2 experts + 1]
    T* dlogits = out[0].as<T>();
    const std::int64_t n = in[0].shape.last(), choices = in[1].shape.last();
    const bool normalize = normalize_, sigmoid = sigmoid_;
    parallel_for(in[0].shape.rows(), [=](std::int64_t token) {
      const T* row = logits + token * n;
      const std::int32_t* experts = chosen + token * choices;
      const Scores<T> scores(row, n, sigmoid);
      const auto log_sum = static_cast<float>(scores.softmax.log_denominator());
      const auto p = [&](std::int64_t e) { return scores.of(e); };
      float sum = 1, mean = 0, inner = 0;
      if (dweights != nullptr && normalize) {
        sum = 0;
        for (std::int64_t slot = 0; slot < choices; ++slot) sum += p(experts[slot]);
        for (std::int64_t slot = 0; slot < choices; ++slot) mean += dweights[token * choices + slot] * p(experts[slot]) / sum;
      }
      // The gradient of a chosen expert's score, beside what all experts' get.
      const auto dchosen = [&](std::int64_t slot) { return (dweights[token * choices + slot] - mean) / sum; };
      const float dz = dstatistics == nullptr ? 0.0F : 2 * dstatistics[2 * n] * log_sum;
      for (std::int64_t e = 0; dstatistics != nullptr && e < n; ++e) inner += p(e) / scores.sum * dstatistics[n + e];
      for (std::int64_t slot = 0; !sigmoid && dweights != nullptr && slot < choices; ++slot)
        inner += p(experts[slot]) * dchosen(slot);
      const auto write = [&](std::int64_t e, float dp) {
        store(dlogits[token * n + e], sigmoid ? p(e) * (1 - p(e)) * dp + scores.probability(e) * dz : p(e) * (dp - inner + dz));
      };
      const auto shared = [&](std::int64_t e) {  // sigmoids count over their sum
        if (dstatistics == nullptr) return 0.0F;
        return sigmoid ? (dstatistics[n + e] - inner) / scores.sum : dstatistics[n + e];
      };
      for (std::int64_t e = 0; e < n; ++e) write(e, shared(e));
      for (std::int64_t slot = 0; dweights != nullptr && slot < choices; ++slot)
        write(experts[slot], shared(experts[slot]) + dchosen(slot));
    });
  }

 private:
  bool normalize_, sigmoid_;
};

class CountChoices final : public Kernel {
 public:
  explicit CountChoices(const KernelRequest& r) : row_(r.attributes.integer("row")) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const float* statistics = in[0].as<float>();
    const std::int64_t experts = in[0].shape[0] / 2;
    float* counts = out[0].as<float>();  // [rows, columns]
    if (at(in, 1).absent()) std::fill_n(counts, out[0].shape.elements(), 0.0F);
    float* mine = counts + row_ * out[0].shape.last();
    for (std::int64_t e = 0; e < experts; ++e) mine[e] += statistics[e];
  }

 private:
  std::int64_t row_;
};

/// Factor of a loss of routers: the number of targets that count, where the data say so.
double count_of(std::span<const Buffer> in) {
  return at(in, 1).absent() ? 1 : static_cast<double>(*in[1].as<float>());
}

class BalanceLoss final : public Kernel {
 public:
  explicit BalanceLoss(const KernelRequest& r) : balance_(r.attributes.real("balance")), z_(r.attributes.real("z")) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const float* s = in[0].as<float>();
    const std::int64_t experts = in[0].shape[0] / 2;
    double loss = z_ * static_cast<double>(s[2 * experts]);
    for (std::int64_t e = 0; e < experts; ++e) loss += balance_ * static_cast<double>(s[e]) * static_cast<double>(s[experts + e]);
    *out[0].as<float>() = static_cast<float>(count_of(in) * loss);
  }

 private:
  double balance_, z_;
};

class BalanceLossGrad final : public Kernel {
 public:
  explicit BalanceLossGrad(const KernelRequest& r) : balance_(r.attributes.real("balance")), z_(r.attributes.real("z")) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const float* s = in[0].as<float>();
    float* d = out[0].as<float>();
    const std::int64_t experts = in[0].shape[0] / 2;
    const double count = count_of(in);
    for (std::int64_t e = 0; e < experts; ++e) {
      d[e] = 0;
      d[experts + e] = static_cast<float>(count * balance_ * static_cast<double>(s[e]));
    }
    d[2 * experts] = static_cast<float>(count * z_);
  }

 private:
  double balance_, z_;
};

Made make_moe_route(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<Route>(r.inputs[0].dtype, r, s);
}
Made make_moe_route_grad(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<RouteGrad>(r.inputs[0].dtype, r);
}
Made make_count_choices(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<CountChoices>(r);
}
Made make_balance_loss(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<BalanceLoss>(r);
}
Made make_balance_loss_grad(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<BalanceLossGrad>(r);
}

}  // namespace

CONSIST_KERNEL(moe_route, make_moe_route);
CONSIST_KERNEL(moe_route_grad, make_moe_route_grad);
CONSIST_KERNEL(count_choices, make_count_choices);
CONSIST_KERNEL(balance_loss, make_balance_loss);
CONSIST_KERNEL(balance_loss_grad, make_balance_loss_grad);

}  // namespace consist::cpu
