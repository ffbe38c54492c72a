// add and cast.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

class Add final : public NamedOp {
 public:
  Add() : NamedOp("add") {}

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    present(in, 1);
    check(in, 1, present(in, 0));
    return {present(in, 0)};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    // A sum of partial sums is a partial sum; a partial and a whole must meet as wholes.
    Placement& a = axis.inputs[0];
    Placement& b = axis.inputs[1];
    if (a.is_partial() != b.is_partial()) {
      if (a.is_partial())
        a = b;
      else
        b = a;
    } else {
      b = a;
    }
    axis.outputs = {a};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const TensorId dy = d.gradient(f.outputs[0]);
    for (TensorId input : f.inputs) {
      if (d.wants(input)) d.contribute(input, dy);
    }
  }
  int updates_in_place(int /*output*/) const noexcept override { return 0; }
};

class Cast final : public NamedOp {
 public:
  Cast() : NamedOp("cast") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    return {TensorType{dtype_attribute(attributes), present(in, 0).shape}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.outputs = {axis.inputs[0]};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const Tensor& x = d.program()[f.inputs[0]];
    const DType to = x.role == Role::parameter ? d.gradient_dtype(f.inputs[0]) : x.dtype;
    d.contribute(f.inputs[0],
                 d.build().emit_one("cast", {d.gradient(f.outputs[0])}, {{"dtype", dtype_value(to)}}, x.name + ".grad"));
  }
};

}  // namespace

void register_elementwise(OpRegistry& registry) {
  registry.add(std::make_unique<Add>());
  registry.add(std::make_unique<Cast>());
}

}  // namespace consist::ops
