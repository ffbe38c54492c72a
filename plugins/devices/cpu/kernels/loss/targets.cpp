// masked_targets, count_targets and per_target.
#include <algorithm>

#include "plugins/devices/cpu/kernels/common/kernels.h"

namespace consist::cpu {
namespace {

class MaskedTargets final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto *targets = in[0].as<std::int32_t>(), *mask = in[1].as<std::int32_t>();
    auto* left = out[0].as<std::int32_t>();
    for (std::int64_t i = 0; i < in[0].shape.elements(); ++i) left[i] = mask[i] != 0 ? targets[i] : -1;
  }
};

class CountTargets final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto* targets = in[0].as<std::int32_t>();
    *out[0].as<float>() = static_cast<float>(
        std::count_if(targets, targets + in[0].shape.elements(), [](std::int32_t target) { return target >= 0; }));
  }
};

class PerTarget final : public Kernel {
 public:
  explicit PerTarget(const KernelRequest& r)
      : targets_(static_cast<float>(r.attributes.real("targets"))), power_(r.attributes.integer("power")) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const float count = *in[1].as<float>(), factor = count > 0 ? targets_ / count : 0.0F;
    *out[0].as<float>() = *in[0].as<float>() * (power_ == 2 ? factor * factor : factor);
  }

 private:
  float targets_;
  std::int64_t power_;
};

Made make_masked_targets(const KernelRequest&, const KernelSettings&) {
  return std::make_unique<MaskedTargets>();
}
Made make_count_targets(const KernelRequest&, const KernelSettings&) {
  return std::make_unique<CountTargets>();
}
Made make_per_target(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<PerTarget>(r);
}

}  // namespace

CONSIST_KERNEL(masked_targets, make_masked_targets);
CONSIST_KERNEL(count_targets, make_count_targets);
CONSIST_KERNEL(per_target, make_per_target);

}  // namespace consist::cpu
