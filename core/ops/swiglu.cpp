// swiglu: silu(gate) * up, and its gradient.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

void same_placement(AxisSharding& axis, std::size_t outputs) {
  const Placement placement = axis.inputs[0].is_partial() ? Placement::replicate() : axis.inputs[0];
  for (Placement& input : axis.inputs) input = placement;
  axis.outputs.assign(outputs, placement);
}

class SwigluGrad final : public NamedOp {
 public:
  SwigluGrad() : NamedOp("swiglu_grad") {}
  const Op* with_amax() const noexcept override {
    static const Op* const op = registry().find("swiglu_grad_amax");
    return op;
  }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& gate = present(in, 1);
    check_present(in, 0, gate);
    check_present(in, 2, gate);
    return {gate, gate};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    std::swap(axis.inputs[0], axis.inputs[1]);  // the saved gate leads
    same_placement(axis, 2);
  }
  bool takes_strided_view(int input) const noexcept override { return input > 0; }
  bool makes_strided_view(int /*output*/) const noexcept override { return true; }
};

class Swiglu final : public NamedOp {
 public:
  Swiglu() : NamedOp("swiglu") {}
  Separable separable() const noexcept override { return Separable::tokens; }
  std::optional<ChannelSplit> channel_split(const Attributes& /*attributes*/) const override { return ChannelSplit{.inputs = 2}; }
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }
  const Op* with_amax() const noexcept override {
    static const Op* const op = registry().find("swiglu_amax");
    return op;
  }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    present(in, 1);
    check(in, 1, present(in, 0));
    return {present(in, 0)};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    same_placement(axis, 1);
  }
  bool takes_strided_view(int /*input*/) const noexcept override { return true; }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const std::vector<TensorId> grads =
        d.build().emit("swiglu_grad", {d.gradient(f.outputs[0]), f.inputs[0], f.inputs[1]}, {},
                       {d.program()[f.inputs[0]].name + ".grad", d.program()[f.inputs[1]].name + ".grad"});
    d.accumulate_grad(f.inputs[0], grads[0]);
    d.accumulate_grad(f.inputs[1], grads[1]);
  }
};

}  // namespace

void register_swiglu(OpRegistry& registry) {
  registry.add(std::make_unique<Swiglu>());
  registry.add(std::make_unique<SwigluGrad>());
}

}  // namespace consist::ops
