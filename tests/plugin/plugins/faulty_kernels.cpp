// The op "faulty_square", y = x², with its gradient and kernels. CONSIST_TEST_FAULT says what is wrong with them.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/kernel_registry.h"
#include "consist/op.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

bool fault(const char* name) {
  const char* const asked = std::getenv("CONSIST_TEST_FAULT");
  return asked != nullptr && std::strcmp(asked, name) == 0;  // without an allocation
}

class Elementwise : public Op {
 public:
  Types infer(const Types& inputs, const Attributes& /*attributes*/) const override {
    if (inputs.empty()) throw ProgramError(std::string(name()) + ": there is no input");
    for (const auto& input : inputs) {
      if (!input || *input != *inputs[0]) throw ProgramError(std::string(name()) + ": inputs must be of one type");
    }
    return {inputs[0]};
  }
  void shard(AxisSharding& axis, const Types& /*inputs*/, const Attributes& /*attributes*/) const override {
    if (fault("shard without outputs")) return;
    const bool sums = axis.inputs[0].is_partial() && !fault("square of a summand");
    const Placement placement = sums ? Placement::replicate() : axis.inputs[0];
    for (Placement& input : axis.inputs) input = placement;
    axis.outputs = {placement};
  }
};

class SquareGrad final : public Elementwise {
 public:
  std::string_view name() const noexcept override { return "faulty_square_grad"; }
};

class Square final : public Elementwise {
 public:
  std::string_view name() const noexcept override { return "faulty_square"; }
  Separable separable() const noexcept override { return Separable::tokens; }
  void differentiate(Differentiator& d, const Instruction& forward) const override {
    const TensorId x = forward.inputs[0];
    d.accumulate_grad(
        x, d.build().emit_one("faulty_square_grad", {x, d.gradient(forward.outputs[0])}, {}, d.program()[x].name + ".grad"));
  }
};

const Op& square = registry().add(std::make_unique<Square>());
const Op& square_grad = registry().add(std::make_unique<SquareGrad>());

class SquareKernel final : public Kernel {
 public:
  std::int64_t workspace_bytes() const override { return fault("negative workspace") ? -5 : 64; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue /*queue*/) override {
    while (fault("hang")) ::pause();
    if (fault("exit")) std::exit(0);
    if (fault("_exit")) ::_exit(0);
    auto *x = in[0].as<float>(), *y = out[0].as<float>();
    const std::int64_t count = out[0].shape.elements();
    for (std::int64_t i = fault("an unwritten element") ? 1 : 0; i < count; ++i) y[i] = x[i] * x[i];
    if (fault("a state") && launches_++ > 0) y[0] += before_;
    before_ = y[count - 1];
    if (fault("a written input")) x[1] = 0;
    if (fault("an overrun")) y[count + 63] = 1;
    if (fault("an underrun")) y[-1] = 1;
    if (fault("an overrun of the workspace")) static_cast<char*>(workspace)[64] = 1;
    if (fault("a read behind the input")) y[0] += x[count];
    if (fault("an allocation")) kept_floats_ = new float[1 << 20];
    if (fault("NaN")) y[0] = std::nanf("");
  }

 private:
  int launches_ = 0;
  float before_ = 0;
  float* volatile kept_floats_ = nullptr;  // never freed
};

class SquareGradKernel final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* /*workspace*/, NativeQueue /*queue*/) override {
    const auto *x = in[0].as<float>(), *dy = in[1].as<float>();
    auto* dx = out[0].as<float>();
    const float factor = fault("a wrong gradient") ? 1.8F : 2.0F;
    for (std::int64_t i = 0; i < out[0].shape.elements(); ++i) dx[i] = factor * x[i] * dy[i];
  }
};

class Set final : public KernelSet {
 public:
  explicit Set(const Options& /*options*/) {}
  std::vector<KernelKey> keys() const override {
    return {{"cpu", "faulty_square", {DType::f32}}, {"cpu", "faulty_square_grad", {DType::f32}}};
  }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    if (request.op == "faulty_square") return std::make_unique<SquareKernel>();
    return std::make_unique<SquareGradKernel>();
  }
  std::vector<KernelExample> examples() const override {
    const TensorType x{DType::f32, {2, 3, 8}};
    return {{"faulty_square", {x}, {}}, {"faulty_square_grad", {x, x}, {}}};
  }
};

}  // namespace

CONSIST_PLUGIN(kernels, consist::KernelSet, Set, "faulty", "1.0.0", "x squared, with the fault that CONSIST_TEST_FAULT names");
CONSIST_PLUGIN_NO_OPTIONS();
