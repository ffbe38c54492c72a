// muon_momentum, orthogonalize and muon (Jordan et al., 2024): see plugins/optimizers/muon.
#include <algorithm>

#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

/// Inputs: clip, gradient, momentum; outputs: momentum in place, direction in f32.
class MuonMomentum final : public NamedOp {
 public:
  MuonMomentum() : NamedOp("muon_momentum") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check_present(in, 0, scalar);
    require(present(in, 1).shape == present(in, 2).shape, "the momentum has another shape than the gradient");
    attributes.real("momentum");
    return {in[2], TensorType{DType::f32, in[2]->shape}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.inputs[0] = Placement::replicate();
    require(!axis.inputs[2].is_partial(), "an optimizer state cannot be partial");
    axis.inputs[1] = axis.inputs[2];
    axis.outputs = {axis.inputs[2], axis.inputs[2]};
  }
  int updates_in_place(int output) const noexcept override { return output == 0 ? 2 : -1; }
};

/// The orthogonal matrix that is nearest to x, about: `iterations` of the quintic Newton-Schulz iteration of x over its Frobenius
/// norm. x, y: f32 [rows, columns], replicated. Attribute "products": the dtype in which it is multiplied.
class Orthogonalize final : public NamedOp {
 public:
  Orthogonalize() : NamedOp("orthogonalize") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 0);
    require(x.shape.rank() == 2 && x.dtype == DType::f32, "x must be an f32 matrix");
    attributes.string("products");
    require(attributes.integer("iterations") >= 1, "there must be an iteration at least");
    return {x};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.inputs[0] = Placement::replicate();
    axis.outputs = {Placement::replicate()};
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    const Shape& shape = program.local(i.inputs[0]);
    const auto less = static_cast<double>(std::min(shape[0], shape[1])), more = static_cast<double>(std::max(shape[0], shape[1]));
    // Each iteration computes the Gram matrix, its square, and its polynomial times x.
    cost.flops = static_cast<double>(i.attributes.integer("iterations")) * (4 * less * less * more + 2 * less * less * less);
    return cost;
  }
};

/// Inputs: scalars (the rate first), value, orthogonal update, master?; outputs: value, master, in place.
class Muon final : public NamedOp {
 public:
  Muon() : NamedOp("muon") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    require(present(in, 0).dtype == DType::f32 && in[0]->shape.rank() == 1, "scalars must be a list of f32");
    const Shape& shape = present(in, 1).shape;
    check_present(in, 2, {DType::f32, shape});
    check(in, 3, {DType::f32, shape});
    for (const char* name : {"scale", "weight_decay"}) attributes.real(name);
    return {in[1], has(in, 3) ? in[3] : std::nullopt};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    axis.inputs[0] = Placement::replicate();
    const Placement placement = axis.inputs[has(in, 3) ? 3 : 1];
    require(!placement.is_partial(), "neither a master nor a parameter can be partial");
    for (std::size_t i = 1; i < axis.inputs.size(); ++i) axis.inputs[i] = placement;
    axis.outputs = {placement, placement};
  }
  int updates_in_place(int output) const noexcept override { return output == 0 ? 1 : 3; }
};

}  // namespace

void register_muon(OpRegistry& registry) {
  registry.add(std::make_unique<MuonMomentum>());
  registry.add(std::make_unique<Orthogonalize>());
  registry.add(std::make_unique<Muon>());
}

}  // namespace consist::ops
