// repeat_heads: gives each rank its key/value head where tensor parallelism has more ranks than there are heads. It works
// on the weights (and biases) of the projections, not on their results: each rank then multiplies by one head only.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

/// Attributes: "axis", the mesh axes whose ranks take a head each; "heads", the number of those ranks; "head_dim", rows of a
/// head.
class RepeatHeadsBase : public NamedOp {
 public:
  using NamedOp::NamedOp;

 protected:
  std::int64_t rows(const Attributes& attributes) const {
    const std::int64_t heads = attributes.integer("heads"), head_dim = attributes.integer("head_dim");
    attributes.axes("axis");
    require(heads > 0 && head_dim > 0, "heads and head_dim must be positive");
    return heads * head_dim;
  }
  static TensorType with_rows(TensorType type, std::int64_t rows) {
    type.shape[0] = rows;
    return type;
  }
  void require_weight(const TensorType& type) const {
    require(type.shape.rank() == 1 || type.shape.rank() == 2, "a weight [out, in] or a bias [out] is repeated");
  }
};

class RepeatHeadsGrad final : public RepeatHeadsBase {
 public:
  RepeatHeadsGrad() : RepeatHeadsBase("repeat_heads_grad") {}
  bool makes_weight_gradients() const noexcept override { return true; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& dy = present(in, 0);
    require_weight(dy);
    require(dy.shape[0] == rows(attributes), "dy must have the rows of all heads");
    const TensorType dx = with_rows(dy, attributes.integer("rows"));
    check(in, 1, dx);
    return {dx};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    if (attributes.axes("axis").contains(axis.axis)) {
      axis.inputs[0] = Placement::shard(0);
      axis.outputs = {Placement::partial()};
    } else {
      if (axis.inputs[0].is_shard()) axis.inputs[0] = Placement::replicate();
      axis.outputs = {axis.inputs[0]};
    }
    if (axis.inputs.size() > 1) axis.inputs[1] = axis.outputs[0];
  }
  int updates_in_place(int /*output*/) const noexcept override { return 1; }
};

class RepeatHeads final : public RepeatHeadsBase {
 public:
  RepeatHeads() : RepeatHeadsBase("repeat_heads") {}
  bool passes_parameters_on() const noexcept override { return true; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 0);
    require_weight(x);
    const std::int64_t repeated = rows(attributes);
    require(x.shape[0] % attributes.integer("head_dim") == 0 && x.shape[0] > 0 && repeated % x.shape[0] == 0,
            "the rows must be whole heads, and the repeated heads a multiple of them");
    return {with_rows(x, repeated)};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    axis.inputs[0] = Placement::replicate();
    axis.outputs = {attributes.axes("axis").contains(axis.axis) ? Placement::shard(0) : Placement::replicate()};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const TensorId x = f.inputs[0];
    const Tensor& t = d.program()[x];
    Attributes attributes = f.attributes;
    attributes.set("rows", t.shape[0]);
    d.accumulate_grad(
        x, d.build().emit_one("repeat_heads_grad", {d.gradient(f.outputs[0]), d.accumulator(x)}, attributes, t.name + ".grad"));
  }
};

}  // namespace

void register_repeat_heads(OpRegistry& registry) {
  registry.add(std::make_unique<RepeatHeads>());
  registry.add(std::make_unique<RepeatHeadsGrad>());
}

}  // namespace consist::ops
