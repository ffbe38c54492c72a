// moe_dispatch, moe_combine and their gradients: rows of tokens, sorted by expert.
#include <algorithm>

#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

template <typename T>
class Dispatch final : public Kernel {
 public:
  explicit Dispatch(const KernelRequest& r)
      : held_(r.outputs[3].shape[0]), first_(r.output_origins.empty() ? 0 : r.output_origins[3][0]) {}
  std::int64_t workspace_bytes() const override { return held_ * std::int64_t{sizeof(std::int64_t)}; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const T* x = in[0].as<T>();                          // [tokens, c]
    const auto* experts = in[1].as<std::int32_t>();      // [tokens, choices]
    const float* weights = in[2].as<float>();            // [tokens, choices]
    T* rows = out[0].as<T>();                            // [room, c]
    float* row_weights = out[1].as<float>();             // [room]
    auto* pairs = out[2].as<std::int32_t>();             // [room]
    auto* counts = out[3].as<std::int32_t>();            // [held]
    auto* next = static_cast<std::int64_t*>(workspace);  // by expert held: the row of its next pair
    const std::int64_t all = in[1].shape.elements(), choices = in[1].shape.last(), c = in[0].shape.last(), room = out[2].shape[0];
    std::fill_n(counts, held_, 0);
    for (std::int64_t pair = 0; pair < all; ++pair) {
      if (const std::int64_t e = experts[pair] - first_; e >= 0 && e < held_) ++counts[e];
    }
    std::int64_t wanted = 0;
    for (std::int64_t e = 0; e < held_; ++e) {
      next[e] = wanted;
      wanted += counts[e];
      counts[e] = static_cast<std::int32_t>(std::clamp<std::int64_t>(room - next[e], 0, counts[e]));
    }
    for (std::int64_t pair = 0; pair < all; ++pair) {
      const std::int64_t e = experts[pair] - first_;
      if (e < 0 || e >= held_) continue;
      const std::int64_t row = next[e]++;
      if (row >= room) continue;
      pairs[row] = static_cast<std::int32_t>(pair);
      row_weights[row] = weights[pair];
    }
    for (std::int64_t row = std::min(wanted, room); row < room; ++row) {
      pairs[row] = -1;
      row_weights[row] = 0;
    }
    *out[4].as<float>() = static_cast<float>(std::max<std::int64_t>(wanted - room, 0));
    parallel_for(room, [=](std::int64_t row) {
      if (pairs[row] < 0)
        std::fill_n(rows + row * c, c, T{});
      else
        std::copy_n(x + pairs[row] / choices * c, c, rows + row * c);
    });
  }

 private:
  std::int64_t held_, first_;
};

/// The row of each pair, −1 where there is none.
void find_rows(const std::int32_t* pairs, std::int64_t rows, std::int32_t* row_of, std::int64_t all) {
  std::fill_n(row_of, all, -1);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (pairs[row] >= 0) row_of[pairs[row]] = static_cast<std::int32_t>(row);
  }
}

/// Each token's rows, added up in the order of its choices.
template <typename T>
void sum_rows(const T* rows, const std::int32_t* row_of, std::int64_t tokens, std::int64_t choices, std::int64_t c, T* sums) {
  parallel_for(tokens, [=](std::int64_t token) {
    const std::int32_t* mine = row_of + token * choices;
    constexpr std::int64_t width = 64;
    for (std::int64_t first = 0; first < c; first += width) {
      const std::int64_t count = std::min(width, c - first);
      float sum[width] = {};
      for (std::int64_t slot = 0; slot < choices; ++slot) {
        if (mine[slot] < 0) continue;
        const T* row = rows + mine[slot] * c + first;
        for (std::int64_t i = 0; i < count; ++i) sum[i] += load(row[i]);
      }
      for (std::int64_t i = 0; i < count; ++i) store(sums[token * c + first + i], sum[i]);
    }
  });
}

template <typename T>
class Combine final : public Kernel {
 public:
  explicit Combine(const KernelRequest& r) : pairs_(r.inputs[3].shape.elements()) {}
  std::int64_t workspace_bytes() const override { return pairs_ * std::int64_t{sizeof(std::int32_t)}; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    auto* row_of = static_cast<std::int32_t*>(workspace);
    find_rows(in[1].as<std::int32_t>(), in[1].shape[0], row_of, pairs_);
    sum_rows(in[0].as<T>(), row_of, in[3].shape.rows(), in[3].shape.last(), in[0].shape.last(), out[0].as<T>());
  }

 private:
  std::int64_t pairs_;  // of all tokens
};

template <typename T>
class CombineGrad final : public Kernel {
 public:
  explicit CombineGrad(const KernelRequest& r) : choices_(r.attributes.integer("choices")) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T* dy = in[0].as<T>();
    const auto* pairs = in[1].as<std::int32_t>();
    T* drows = out[0].as<T>();
    const std::int64_t c = in[0].shape.last(), choices = choices_;
    parallel_for(in[1].shape[0], [=](std::int64_t row) {
      if (pairs[row] < 0)
        std::fill_n(drows + row * c, c, T{});
      else
        std::copy_n(dy + pairs[row] / choices * c, c, drows + row * c);
    });
  }

 private:
  std::int64_t choices_;
};

template <typename T>
class DispatchGrad final : public Kernel {
 public:
  explicit DispatchGrad(const KernelRequest& r) : pairs_(r.inputs[4].shape.elements()) {}
  std::int64_t workspace_bytes() const override { return pairs_ * std::int64_t{sizeof(std::int32_t)}; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    auto* row_of = static_cast<std::int32_t*>(workspace);
    const float* drow_weights = in[1].as<float>();
    float* dweights = out[1].as<float>();
    find_rows(in[2].as<std::int32_t>(), in[2].shape[0], row_of, pairs_);
    parallel_for(pairs_, [=](std::int64_t pair) { dweights[pair] = row_of[pair] < 0 ? 0.0F : drow_weights[row_of[pair]]; });
    sum_rows(in[0].as<T>(), row_of, in[4].shape.rows(), in[4].shape.last(), in[0].shape.last(), out[0].as<T>());
  }

 private:
  std::int64_t pairs_;
};

Made make_moe_dispatch(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Dispatch>(r.inputs[0].dtype, r);
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

}  // namespace

CONSIST_KERNEL(moe_dispatch, make_moe_dispatch);
CONSIST_KERNEL(moe_dispatch_grad, make_moe_dispatch_grad);
CONSIST_KERNEL(moe_combine, make_moe_combine);
CONSIST_KERNEL(moe_combine_grad, make_moe_combine_grad);

}  // namespace consist::cpu
