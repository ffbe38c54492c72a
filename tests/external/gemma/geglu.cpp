// The op "geglu", gelu_tanh(gate)·up (Shazeer, 2020), and its gradient, with kernels for the device "cpu".
#include <consist/builder.h>
#include <consist/error.h>
#include <consist/kernel_registry.h>
#include <consist/op.h>
#include <consist/plugin.h>

#include <cmath>

namespace {

using namespace consist;

/// Each element by itself: any part of the inputs gives that part of the outputs. Summands must be added up first.
class Elementwise : public Op {
 public:
  Elementwise(std::string_view name, std::size_t inputs, std::size_t outputs) : name_(name), inputs_(inputs), outputs_(outputs) {}
  std::string_view name() const noexcept override { return name_; }
  Types infer(const Types& in, const Attributes&) const override {
    for (std::size_t i = 0; i < inputs_; ++i) {
      if (i >= in.size() || !in[i] || !in[0] || *in[i] != *in[0] || in[0]->dtype != DType::f32)
        throw ProgramError(std::string(name_) + ": its inputs must be there, f32 and of one shape");
    }
    return Types(outputs_, *in[0]);
  }
  void shard(AxisSharding& axis, const Types&, const Attributes&) const override {
    const Placement last = axis.inputs.back(), placement = last.is_partial() ? Placement::replicate() : last;
    for (Placement& input : axis.inputs) input = placement;
    axis.outputs.assign(outputs_, placement);
  }

 private:
  std::string_view name_;
  std::size_t inputs_, outputs_;
};

class Geglu final : public Elementwise {
 public:
  Geglu() : Elementwise("geglu", 2, 1) {}
  Separable separable() const noexcept override { return Separable::tokens; }
  std::optional<ChannelSplit> channel_split(const Attributes&) const override { return ChannelSplit{.inputs = 2}; }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const auto name = [&](std::size_t k) { return d.program()[f.inputs[k]].name + ".grad"; };
    const std::vector<TensorId> made =
        d.build().emit("geglu_grad", {d.gradient(f.outputs[0]), f.inputs[0], f.inputs[1]}, {}, {name(0), name(1)});
    for (std::size_t k = 0; k < 2; ++k) d.accumulate_grad(f.inputs[k], made[k]);
  }
};

const Op& geglu = registry().add(std::make_unique<Geglu>());
const Op& geglu_grad = registry().add(std::make_unique<Elementwise>("geglu_grad", 3, 2));

constexpr float slope = 0.7978845608028654F, cubic = 0.044715F;  // slope: sqrt(2/pi)

class GegluKernel final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto *gate = in[0].as<float>(), *up = in[1].as<float>();
    for (std::int64_t i = 0; i < out[0].shape.elements(); ++i) {
      const float x = gate[i];
      out[0].as<float>()[i] = 0.5F * x * (1 + std::tanh(slope * (x + cubic * x * x * x))) * up[i];
    }
  }
};

class GegluGradKernel final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto *dh = in[0].as<float>(), *gate = in[1].as<float>(), *up = in[2].as<float>();
    for (std::int64_t i = 0; i < out[0].shape.elements(); ++i) {
      const float x = gate[i], tanh = std::tanh(slope * (x + cubic * x * x * x)), half = 0.5F * (1 + tanh);
      out[0].as<float>()[i] = dh[i] * up[i] * (half + 0.5F * x * (1 - tanh * tanh) * slope * (1 + 3 * cubic * x * x));
      out[1].as<float>()[i] = dh[i] * x * half;
    }
  }
};

class Kernels final : public KernelSet {
 public:
  explicit Kernels(const Options&) {}
  std::vector<KernelKey> keys() const override { return {{"cpu", "geglu", {DType::f32}}, {"cpu", "geglu_grad", {DType::f32}}}; }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    if (request.op == "geglu") return std::make_unique<GegluKernel>();
    return std::make_unique<GegluGradKernel>();
  }
  std::vector<KernelExample> examples() const override {
    const TensorType x{DType::f32, {2, 3, 8}};
    return {{"geglu", {x, x}, {}}, {"geglu_grad", {x, x, x}, {}}};
  }
};

}  // namespace

CONSIST_PLUGIN(kernels, consist::KernelSet, Kernels, "geglu", "1.0.0", "gelu_tanh(gate)·up, an op of its own, on cpu");
CONSIST_PLUGIN_NO_OPTIONS();
