// The op "squared_relu", y = max(x, 0)² (So et al., 2021, Primer), and its gradient.
#include <consist/builder.h>
#include <consist/error.h>
#include <consist/op.h>

namespace {

using namespace consist;

/// The type that all inputs must have.
TensorType common_type(const Op& op, const Types& inputs, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= inputs.size() || !inputs[i])
      throw ProgramError(std::string(op.name()) + ": input " + std::to_string(i) + " is missing");
    if (*inputs[i] != *inputs[0]) throw ProgramError(std::string(op.name()) + ": its inputs differ in dtype or shape");
  }
  if (inputs[0]->dtype != DType::f32 && inputs[0]->dtype != DType::bf16)
    throw ProgramError(std::string(op.name()) + ": x must be f32 or bf16");
  return *inputs[0];
}

/// Each element by itself: any part of x gives that part of y. Summands must be added up first.
void same_placement(AxisSharding& axis, Placement placement) {
  if (placement.is_partial()) placement = Placement::replicate();
  for (Placement& input : axis.inputs) input = placement;
  axis.outputs = {placement};
}

/// Bytes that both ops move: each tensor once.
Cost bytes_once(const Program& program, const Instruction& i) {
  double bytes = static_cast<double>(program.bytes(i.outputs[0]));
  for (TensorId input : i.inputs) bytes += static_cast<double>(program.bytes(input));
  return {.flops = 0, .bytes = bytes};
}

class SquaredReluGrad final : public Op {
 public:
  std::string_view name() const noexcept override { return "squared_relu_grad"; }
  Types infer(const Types& inputs, const Attributes&) const override { return {common_type(*this, inputs, 2)}; }
  void shard(AxisSharding& axis, const Types&, const Attributes&) const override { same_placement(axis, axis.inputs[1]); }
  Cost cost(const Program& program, const Instruction& i) const override { return bytes_once(program, i); }
};

class SquaredRelu final : public Op {
 public:
  std::string_view name() const noexcept override { return "squared_relu"; }
  /// Traits that passes and strategies ask for: it may run on parts of the tokens, and on a rank's part of the channels.
  Separable separable() const noexcept override { return Separable::tokens; }
  std::optional<ChannelSplit> channel_split(const Attributes&) const override { return ChannelSplit{.inputs = 1}; }
  Types infer(const Types& inputs, const Attributes&) const override { return {common_type(*this, inputs, 1)}; }
  void shard(AxisSharding& axis, const Types&, const Attributes&) const override { same_placement(axis, axis.inputs[0]); }
  void differentiate(Differentiator& d, const Instruction& forward) const override {
    const TensorId x = forward.inputs[0];
    d.accumulate_grad(
        x, d.build().emit_one("squared_relu_grad", {d.gradient(forward.outputs[0]), x}, {}, d.program()[x].name + ".grad"));
  }
  Cost cost(const Program& program, const Instruction& i) const override { return bytes_once(program, i); }
};

const Op& relu = registry().add(std::make_unique<SquaredRelu>());
const Op& relu_grad = registry().add(std::make_unique<SquaredReluGrad>());

}  // namespace
