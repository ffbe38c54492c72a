// The kernel of schedule_free for the device "cpu", in fp32.
#include <consist/kernel_registry.h>
#include <consist/plugin.h>

#include <algorithm>
#include <cmath>

namespace {

using namespace consist;

constexpr std::size_t stride = 7;

class ScheduleFree final : public Kernel {
 public:
  explicit ScheduleFree(const Attributes& a)
      : beta1_(static_cast<float>(a.real("beta1"))),
        beta2_(static_cast<float>(a.real("beta2"))),
        epsilon_(static_cast<float>(a.real("epsilon"))),
        decay_(static_cast<float>(a.real("weight_decay"))) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue) override {
    const float rate = in[0].as<float>()[0], correction = in[0].as<float>()[1], clip = *in[1].as<float>();
    if (clip < 0) return;  // a step that changes nothing
    for (std::size_t p = 2; p < in.size(); p += stride) {
      float &weight_sum = *in[p + 5].as<float>(), &largest_rate = *in[p + 6].as<float>();
      largest_rate = std::max(largest_rate, rate);
      const float weight = largest_rate * largest_rate;  // of z in the average
      weight_sum += weight;
      const float share = weight_sum > 0 ? weight / weight_sum : 0;
      const bool has_master = !in[p + 2].absent();
      auto *value = in[p].as<float>(), *y = has_master ? in[p + 2].as<float>() : value, *moment2 = in[p + 3].as<float>(),
           *ahead = in[p + 4].as<float>();
      const std::int64_t count = in[p].shape.elements();
      for (std::int64_t i = 0; i < count; ++i) {
        const float g = clip * in[p + 1].as<float>()[i];
        moment2[i] = beta2_ * moment2[i] + (1 - beta2_) * g * g;
        const float moved = rate * (g / (std::sqrt(moment2[i] / correction) + epsilon_) + decay_ * y[i]);  // of z
        value[i] = y[i] += share * ahead[i] + moved * (beta1_ * (1 - share) - 1);
        ahead[i] = (1 - share) * (ahead[i] - beta1_ * moved);
      }
    }
  }

 private:
  float beta1_, beta2_, epsilon_, decay_;
};

class CpuKernels final : public KernelSet {
 public:
  explicit CpuKernels(const Options&) {}
  std::vector<KernelKey> keys() const override { return {{"cpu", "schedule_free", {DType::f32}}}; }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    for (const Buffer& buffer : request.inputs) {
      if (!buffer.absent() && buffer.dtype != DType::f32) return nullptr;
    }
    return std::make_unique<ScheduleFree>(request.attributes);
  }
  std::vector<KernelExample> examples() const override {
    const TensorType scalar{DType::f32, {}}, w{DType::f32, {3, 5}};
    return {{"schedule_free",
             {TensorType{DType::f32, {2}}, scalar, w, w, std::nullopt, w, w, scalar, scalar},
             {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.1}}}};
  }
};

}  // namespace

CONSIST_PLUGIN(kernels, consist::KernelSet, CpuKernels, "schedule-free-op", "1.0.0",
               "the update of my-schedule-free, on cpu in fp32");
CONSIST_PLUGIN_NO_OPTIONS();
