// Kernels of squared_relu and squared_relu_grad for the device "cpu".
#include <consist/kernel_registry.h>
#include <consist/plugin.h>

#include <algorithm>

namespace {

using namespace consist;

class SquaredRelu final : public Kernel {
 public:
  void launch(std::span<const Buffer> inputs, std::span<const Buffer> outputs, void*, NativeQueue) override {
    const auto* x = inputs[0].as<float>();
    auto* y = outputs[0].as<float>();
    const std::int64_t count = outputs[0].shape.elements();
    for (std::int64_t i = 0; i < count; ++i) {
      const float positive = std::max(x[i], 0.0F);
      y[i] = positive * positive;
    }
  }
};

class SquaredReluGrad final : public Kernel {
 public:
  void launch(std::span<const Buffer> inputs, std::span<const Buffer> outputs, void*, NativeQueue) override {
    const auto *dy = inputs[0].as<float>(), *x = inputs[1].as<float>();
    auto* dx = outputs[0].as<float>();
    const std::int64_t count = outputs[0].shape.elements();
    for (std::int64_t i = 0; i < count; ++i) dx[i] = dy[i] * 2.0F * std::max(x[i], 0.0F);
  }
};

class CpuKernels final : public KernelSet {
 public:
  explicit CpuKernels(const Options&) {}
  std::vector<KernelKey> keys() const override {
    return {{"cpu", "squared_relu", {DType::f32}}, {"cpu", "squared_relu_grad", {DType::f32}}};
  }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    if (request.op == "squared_relu") return std::make_unique<SquaredRelu>();
    return std::make_unique<SquaredReluGrad>();
  }
  std::vector<KernelExample> examples() const override {
    const TensorType x{DType::f32, {2, 3, 8}};
    return {{"squared_relu", {x}, {}}, {"squared_relu_grad", {x, x}, {}}};
  }
};

}  // namespace

CONSIST_PLUGIN(kernels, consist::KernelSet, CpuKernels, "squared-relu", "1.0.0", "max(x, 0) squared, an op of its own, on cpu");
CONSIST_PLUGIN_NO_OPTIONS();
