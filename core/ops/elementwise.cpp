// add, scale and cast.
#include <cmath>

#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

/// One sum per pair of inputs, whose second may be narrower.
class Add final : public NamedOp {
 public:
  Add() : NamedOp("add") {}
  bool adds_pairs() const noexcept override { return true; }
  Separable separable() const noexcept override { return Separable::tokens; }
  bool is_additive() const noexcept override { return true; }
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    require(!in.empty() && in.size() % 2 == 0, "inputs must come in pairs");
    Types sums;
    for (std::size_t i = 0; i < in.size(); i += 2) {
      const bool narrower = present(in, i).dtype == DType::f32 && present(in, i + 1).dtype == DType::bf16;
      check(in, i + 1, {narrower ? DType::bf16 : in[i]->dtype, in[i]->shape});
      sums.push_back(in[i]);
    }
    return sums;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    for (std::size_t i = 0; i < in.size(); i += 2) {
      // A sum of partial sums is partial; a partial and a replicated one must both be replicated.
      Placement& a = axis.inputs[i];
      Placement& b = axis.inputs[i + 1];
      if (a.is_partial() && !b.is_partial())
        a = b;
      else
        b = a;
      axis.outputs.push_back(a);
    }
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    for (std::size_t i = 0; i < f.inputs.size(); ++i) {
      const TensorId dy = d.gradient(f.outputs[i / 2]);
      if (dy == no_tensor || !d.requires_grad(f.inputs[i])) continue;
      if (d.program()[f.inputs[i]].dtype != d.program()[dy].dtype) fail("sums of two dtypes have no gradient");
      d.accumulate_grad(f.inputs[i], dy);
    }
  }
  int updates_in_place(int output) const noexcept override { return 2 * output; }
};

/// Multiplies by a constant.
class Scale final : public NamedOp {
 public:
  Scale() : NamedOp("scale") {}
  bool is_additive() const noexcept override { return true; }
  Separable separable() const noexcept override { return Separable::tokens; }
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 0);
    require(x.dtype == DType::f32 || x.dtype == DType::bf16, "x must be f32 or bf16");
    require(std::isfinite(attributes.real("factor")), "the factor must be finite");
    return {x};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.outputs = {axis.inputs[0]};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const std::string name = d.program()[f.inputs[0]].name + ".grad";
    d.accumulate_grad(f.inputs[0], d.build().emit_one("scale", {d.gradient(f.outputs[0])}, f.attributes, name));
  }
  bool takes_strided_view(int /*input*/) const noexcept override { return true; }
  bool makes_strided_view(int /*output*/) const noexcept override { return true; }
};

class Cast final : public NamedOp {
 public:
  Cast() : NamedOp("cast") {}
  bool is_additive() const noexcept override { return true; }
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    return {TensorType{dtype_attribute(attributes), present(in, 0).shape}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.outputs = {axis.inputs[0]};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const Tensor& x = d.program()[f.inputs[0]];
    const DType to = x.role == Role::parameter ? d.gradient_dtype(f.inputs[0]) : x.dtype;
    d.accumulate_grad(f.inputs[0],
                      d.build().emit_one("cast", {d.gradient(f.outputs[0])}, {{"dtype", dtype_value(to)}}, x.name + ".grad"));
  }
};

}  // namespace

void register_elementwise(OpRegistry& registry) {
  registry.add(std::make_unique<Add>());
  registry.add(std::make_unique<Scale>());
  registry.add(std::make_unique<Cast>());
}

}  // namespace consist::ops
