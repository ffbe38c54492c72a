// repeat_heads and its gradient: copies of whole rows.
#include "plugins/devices/common/repeat_heads.h"

#include <algorithm>
#include <cstring>

#include "plugins/devices/cpu/kernels/common/kernels.h"

namespace consist::cpu {
namespace {

class RepeatHeads final : public Kernel {
 public:
  explicit RepeatHeads(const KernelRequest& r) : repetition_(kernels::HeadRepetition::of_forward(r)) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto size = static_cast<std::int64_t>(size_of(in[0].dtype)), bytes = repetition_.head_elements * size;
    for (std::int64_t head = 0; head < repetition_.heads; ++head) {
      std::memcpy(out[0].as<char>() + head * bytes, in[0].as<char>() + repetition_.source(head) * size,
                  static_cast<std::size_t>(bytes));
    }
  }

 private:
  kernels::HeadRepetition repetition_;
};

template <typename G>
class RepeatHeadsGrad final : public Kernel {
 public:
  explicit RepeatHeadsGrad(const KernelRequest& r) : repetition_(kernels::HeadRepetition::of_gradient(r)) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const G* dy = in[0].as<G>();
    G* dx = out[0].as<G>();
    if (at(in, 1).absent()) std::fill_n(dx, out[0].shape.elements(), G{});
    for (std::int64_t head = 0; head < repetition_.heads; ++head) {
      G* to = dx + repetition_.source(head);
      for (std::int64_t i = 0; i < repetition_.head_elements; ++i) store(to[i], load(to[i]) + load(*dy++));
    }
  }

 private:
  kernels::HeadRepetition repetition_;
};

Made make_repeat_heads(const KernelRequest& r, const KernelSettings& /*s*/) {
  return std::make_unique<RepeatHeads>(r);
}
Made make_repeat_heads_grad(const KernelRequest& r, const KernelSettings& /*s*/) {
  return by_dtype<RepeatHeadsGrad>(r.outputs[0].dtype, r);
}

}  // namespace

CONSIST_KERNEL(repeat_heads, make_repeat_heads);
CONSIST_KERNEL(repeat_heads_grad, make_repeat_heads_grad);

}  // namespace consist::cpu
