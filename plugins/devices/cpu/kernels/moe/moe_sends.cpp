// moe_send, moe_return and their gradients: tokens packed for the ranks that have their experts. Locally a rank packs
// [1, ranks, room, channels].
#include <algorithm>

#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

/// The token in each place of the packed rows, -1 where there is none. `slots`: [tokens, ranks], the place of each token among
/// those for a rank.
void find_tokens(const std::int32_t* slots, std::int64_t tokens, std::int64_t ranks, std::int64_t room, std::int32_t* token_of) {
  std::fill_n(token_of, ranks * room, -1);
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      if (const std::int32_t slot = slots[token * ranks + rank]; slot >= 0)
        token_of[rank * room + slot] = static_cast<std::int32_t>(token);
    }
  }
}

/// rows[place] = x[token_of[place]], 0 for -1; `c` elements each.
template <typename T>
void pack_rows(const T* x, const std::int32_t* token_of, std::int64_t places, std::int64_t c, T* rows) {
  parallel_for(places, [=](std::int64_t place) {
    if (token_of[place] < 0)
      std::fill_n(rows + place * c, c, T{});
    else
      std::copy_n(x + token_of[place] * c, c, rows + place * c);
  });
}

/// Each token's rows, added up in the order of ranks.
template <typename T>
void sum_slots(const T* rows, const std::int32_t* slots, std::int64_t tokens, std::int64_t ranks, std::int64_t room,
               std::int64_t c, T* sums) {
  parallel_for(tokens, [=](std::int64_t token) {
    constexpr std::int64_t width = 64;
    for (std::int64_t first = 0; first < c; first += width) {
      const std::int64_t count = std::min(width, c - first);
      float sum[width] = {};
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int32_t slot = slots[token * ranks + rank];
        if (slot < 0) continue;
        const T* row = rows + (rank * room + slot) * c + first;
        for (std::int64_t i = 0; i < count; ++i) sum[i] += load(row[i]);
      }
      for (std::int64_t i = 0; i < count; ++i) store(sums[token * c + first + i], sum[i]);
    }
  });
}

template <typename T>
class Send final : public Kernel {
 public:
  explicit Send(const KernelRequest& r)
      : ranks_(r.outputs[0].shape[1]), room_(r.outputs[0].shape[2]), experts_(r.attributes.integer("experts") / ranks_) {}
  std::int64_t workspace_bytes() const override { return ranks_ * (room_ + 1) * std::int64_t{sizeof(std::int32_t)}; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const auto* experts = in[1].as<std::int32_t>();  // [tokens, choices]
    const float* weights = in[2].as<float>();        // [tokens, choices]
    auto* sent_experts = out[1].as<std::int32_t>();  // [ranks, room, choices]
    float* sent_weights = out[2].as<float>();        // [ranks, room, choices]
    auto* slots = out[3].as<std::int32_t>();         // [tokens, ranks]
    auto* next = static_cast<std::int32_t*>(workspace);
    auto* token_of = next + ranks_;
    const std::int64_t tokens = in[1].shape.rows(), choices = in[1].shape.last();
    std::int64_t missing = 0;
    std::fill_n(next, ranks_, 0);
    std::fill_n(slots, tokens * ranks_, -1);
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::int32_t* mine = slots + token * ranks_;
      for (std::int64_t slot = 0; slot < choices; ++slot) mine[experts[token * choices + slot] / experts_] = 0;
      for (std::int64_t rank = 0; rank < ranks_; ++rank) {
        if (mine[rank] < 0) continue;
        const bool has_room = next[rank] < room_;
        mine[rank] = has_room ? next[rank]++ : -1;
        missing += has_room ? 0 : 1;
      }
    }
    *out[4].as<float>() = static_cast<float>(missing);
    find_tokens(slots, tokens, ranks_, room_, token_of);
    pack_rows(in[0].as<T>(), token_of, ranks_ * room_, in[0].shape.last(), out[0].as<T>());
    pack_rows(weights, token_of, ranks_ * room_, choices, sent_weights);
    for (std::int64_t place = 0; place < ranks_ * room_; ++place) {
      if (token_of[place] < 0)
        std::fill_n(sent_experts + place * choices, choices, -1);
      else
        std::copy_n(experts + token_of[place] * choices, choices, sent_experts + place * choices);
    }
  }

 private:
  std::int64_t ranks_, room_, experts_;  // experts of each rank
};

template <typename T>
class SendGrad final : public Kernel {
 public:
  explicit SendGrad(const KernelRequest& r) : experts_(r.attributes.integer("experts") / r.inputs[2].shape.last()) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const float* dsent_weights = in[1].as<float>();  // [ranks, room, choices]
    const auto* slots = in[2].as<std::int32_t>();    // [tokens, ranks]
    const auto* experts = in[3].as<std::int32_t>();  // [tokens, choices]
    float* dweights = out[1].as<float>();            // [tokens, choices]
    const std::int64_t tokens = in[2].shape.rows(), ranks = in[2].shape.last(), room = in[0].shape[2],
                       choices = in[3].shape.last(), of_rank = experts_;
    sum_slots(in[0].as<T>(), slots, tokens, ranks, room, in[0].shape.last(), out[0].as<T>());
    parallel_for(tokens * choices, [=](std::int64_t pair) {
      const std::int64_t rank = experts[pair] / of_rank, slot = slots[pair / choices * ranks + rank];
      dweights[pair] = slot < 0 ? 0.0F : dsent_weights[(rank * room + slot) * choices + pair % choices];
    });
  }

 private:
  std::int64_t experts_;  // of each rank
};

template <typename T>
class Return final : public Kernel {
 public:
  explicit Return(const KernelRequest& /*r*/) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    sum_slots(in[0].as<T>(), in[1].as<std::int32_t>(), in[1].shape.rows(), in[1].shape.last(), in[0].shape[2], in[0].shape.last(),
              out[0].as<T>());
  }
};

template <typename T>
class ReturnGrad final : public Kernel {
 public:
  explicit ReturnGrad(const KernelRequest& r) : places_(r.outputs[0].shape[1] * r.outputs[0].shape[2]) {}
  std::int64_t workspace_bytes() const override { return places_ * std::int64_t{sizeof(std::int32_t)}; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    auto* token_of = static_cast<std::int32_t*>(workspace);
    find_tokens(in[1].as<std::int32_t>(), in[1].shape.rows(), in[1].shape.last(), out[0].shape[2], token_of);
    pack_rows(in[0].as<T>(), token_of, places_, in[0].shape.last(), out[0].as<T>());
  }

 private:
  std::int64_t places_;
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

}  // namespace consist::cpu
