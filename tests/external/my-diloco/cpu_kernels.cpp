// Kernels of my_own_gradient and my_begin_round for the device "cpu".
#include <consist/kernel_registry.h>
#include <consist/plugin.h>

#include <algorithm>
#include <cmath>

namespace {

using namespace consist;

class OwnGradient final : public Kernel {
 public:
  explicit OwnGradient(const Attributes& a) : ranks_(static_cast<float>(a.integer("ranks"))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    for (std::size_t k = 0; k < in.size(); ++k)
      std::transform(in[k].as<float>(), in[k].as<float>() + in[k].shape.elements(), out[k].as<float>(),
                     [this](float g) { return ranks_ * g; });
  }

 private:
  float ranks_;
};

class BeginRound final : public Kernel {
 public:
  explicit BeginRound(const Attributes& a) : every_(static_cast<float>(a.integer("every"))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue) override {
    if (std::fmod(*in[0].as<float>(), every_) != 0) return;
    for (std::size_t i = 1; i < in.size(); i += 2) std::copy_n(in[i].as<float>(), in[i].shape.elements(), in[i + 1].as<float>());
  }

 private:
  float every_;
};

class CpuKernels final : public KernelSet {
 public:
  explicit CpuKernels(const Options&) {}
  std::vector<KernelKey> keys() const override {
    return {{"cpu", "my_own_gradient", {DType::f32}}, {"cpu", "my_begin_round", {DType::f32}}};
  }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    if (request.op == "my_own_gradient") return std::make_unique<OwnGradient>(request.attributes);
    return std::make_unique<BeginRound>(request.attributes);
  }
  std::vector<KernelExample> examples() const override {
    const TensorType count{DType::f32, {}}, x{DType::f32, {3, 5}};
    return {{"my_own_gradient", {x, x}, {{"axis", AxisSet()}, {"ranks", std::int64_t{2}}}},
            {"my_begin_round", {count, x, x}, {{"every", std::int64_t{3}}}}};
  }
};

}  // namespace

CONSIST_PLUGIN(kernels, consist::KernelSet, CpuKernels, "diloco", "1.0.0", "ops of my-diloco, on cpu in fp32");
CONSIST_PLUGIN_NO_OPTIONS();
