// linear: y = x wᵀ + bias + sum, and its three gradients. The sum, which y takes the place of, is given by a pass
// (core/passes/fuse.h). The placement rules are those of column- and row-parallel linears
// (Megatron-LM, Shoeybi et al., 2019): a weight sharded along its outputs makes y sharded along channels; one sharded along its
// inputs makes y partial.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

constexpr int sum_of_linear = 3;  // the input that y is added to

double product_flops(const Program& program, TensorId activation, TensorId weight) {
  return 2.0 * static_cast<double>(program.local(activation).rows()) * static_cast<double>(program.local(weight).elements());
}

class LinearInputGrad final : public NamedOp {
 public:
  LinearInputGrad() : NamedOp("linear_input_grad") {}
  LinearPart linear_part() const noexcept override { return LinearPart::input_gradient; }
  const Op* packed() const noexcept override {
    static const Op* const op = registry().find("packed_linear_input_grad");
    return op;
  }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& dy = present(in, 0);
    const TensorType& w = present(in, 1);
    require(dy.shape.rank() == 3 && w.shape.rank() == 2, "dy must be [batch, sequence, out] and w [out, in]");
    require(dy.shape[2] == w.shape[0], "the channels of dy are not the rows of w");
    TensorType out{dy.dtype, {dy.shape[0], dy.shape[1], w.shape[1]}};
    check(in, 2, out);
    return {out};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    Placement& dy = axis.inputs[0];
    Placement& w = axis.inputs[1];
    if (w.is_shard(out_dim)) {
      dy = Placement::shard(channels);
      axis.outputs = {Placement::partial()};
    } else if (w.is_shard(in_dim)) {
      dy = Placement::replicate();
      axis.outputs = {Placement::shard(channels)};
    } else {
      w = Placement::replicate();
      if (!over_tokens(dy)) dy = Placement::replicate();
      axis.outputs = {dy};
    }
    if (has(in, 2)) axis.inputs[2] = axis.outputs[0];
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = product_flops(program, i.inputs[0], i.inputs[1]);
    return cost;
  }
  int updates_in_place(int /*output*/) const noexcept override { return 2; }
  bool takes_strided_view(int input) const noexcept override { return input == 0; }
};

class LinearWeightGrad final : public NamedOp {
 public:
  LinearWeightGrad() : NamedOp("linear_weight_grad") {}
  LinearPart linear_part() const noexcept override { return LinearPart::weight_gradient; }
  const Op* packed() const noexcept override {
    static const Op* const op = registry().find("packed_linear_weight_grad");
    return op;
  }
  bool makes_weight_gradients() const noexcept override { return true; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 0);
    const TensorType& dy = present(in, 1);
    require(x.shape.rank() == 3 && dy.shape.rank() == 3, "x and dy must be [batch, sequence, channels]");
    require(x.shape[0] == dy.shape[0] && x.shape[1] == dy.shape[1], "x and dy are of different tokens");
    TensorType out{dtype_attribute(attributes), {dy.shape[2], x.shape[2]}};
    check(in, 2, out);
    return {out};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    Placement& x = axis.inputs[0];
    Placement& dy = axis.inputs[1];
    if (dy.is_shard(channels)) {
      x = Placement::replicate();
      axis.outputs = {Placement::shard(out_dim)};
    } else if (x.is_shard(channels)) {
      dy = Placement::replicate();
      axis.outputs = {Placement::shard(in_dim)};
    } else {
      if (!over_tokens(x)) x = Placement::replicate();
      dy = x;
      axis.outputs = {summed_over_tokens(x)};
    }
    if (has(in, 2)) axis.inputs[2] = axis.outputs[0];
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = product_flops(program, i.inputs[0], i.outputs[0]);
    return cost;
  }
  int updates_in_place(int /*output*/) const noexcept override { return 2; }
  bool takes_strided_view(int input) const noexcept override { return input == 1; }
};

class LinearBiasGrad final : public NamedOp {
 public:
  LinearBiasGrad() : NamedOp("linear_bias_grad") {}
  bool makes_weight_gradients() const noexcept override { return true; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& dy = present(in, 0);
    require(dy.shape.rank() == 3, "dy must be [batch, sequence, channels]");
    TensorType out{dtype_attribute(attributes), {dy.shape[2]}};
    check(in, 1, out);
    return {out};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    Placement& dy = axis.inputs[0];
    if (dy.is_partial()) dy = Placement::replicate();
    axis.outputs = {dy.is_shard(channels) ? Placement::shard(0) : summed_over_tokens(dy)};
    if (has(in, 1)) axis.inputs[1] = axis.outputs[0];
  }
  int updates_in_place(int /*output*/) const noexcept override { return 1; }
  bool takes_strided_view(int input) const noexcept override { return input == 0; }
};

class Linear final : public NamedOp {
 public:
  Linear() : NamedOp("linear") {}
  LinearPart linear_part() const noexcept override { return LinearPart::product; }
  const Op* packed() const noexcept override {
    static const Op* const op = registry().find("packed_linear");
    return op;
  }
  Separable separable() const noexcept override { return Separable::tokens; }
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& x = present(in, 0);
    const TensorType& w = present(in, 1);
    require(x.shape.rank() == 3 && w.shape.rank() == 2, "x must be [batch, sequence, in] and w [out, in]");
    require(x.dtype == w.dtype, "x and w have different dtypes");
    require(x.shape[2] == w.shape[1], "the channels of x are not the columns of w");
    check(in, 2, {w.dtype, {w.shape[0]}});
    TensorType y{x.dtype, {x.shape[0], x.shape[1], w.shape[0]}};
    check(in, sum_of_linear, y);
    return {y};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    Placement& x = axis.inputs[0];
    Placement& w = axis.inputs[1];
    Placement bias = Placement::replicate();
    if (w.is_shard(out_dim)) {
      x = Placement::replicate();
      bias = Placement::shard(0);
      axis.outputs = {Placement::shard(channels)};
    } else if (w.is_shard(in_dim)) {
      require(!has(in, 2), "a linear with a bias cannot be split along its inputs: the bias would be added once per rank");
      x = Placement::shard(channels);
      axis.outputs = {Placement::partial()};
    } else {
      w = Placement::replicate();
      if (!over_tokens(x)) x = Placement::replicate();
      axis.outputs = {x};
    }
    if (has(in, 2)) axis.inputs[2] = bias;
    if (has(in, sum_of_linear)) axis.inputs[sum_of_linear] = axis.outputs[0];
  }
  void differentiate(Differentiator& d, const Instruction& forward) const override {
    const TensorId x = forward.inputs[0], w = forward.inputs[1], bias = input_of(forward, 2);
    const TensorId dy = d.gradient(forward.outputs[0]);
    Builder& b = d.build();
    const std::string& name = d.program()[w].name;
    if (d.requires_grad(w)) {
      Attributes attributes{{"dtype", dtype_value(d.gradient_dtype(w))}};
      d.accumulate_grad(w, b.emit_one("linear_weight_grad", {x, dy, d.accumulator(w)}, attributes, name + ".grad"));
    }
    if (bias != no_tensor && d.requires_grad(bias)) {
      Attributes attributes{{"dtype", dtype_value(d.gradient_dtype(bias))}};
      const std::string bias_name = d.program()[bias].name + ".grad";
      d.accumulate_grad(bias, b.emit_one("linear_bias_grad", {dy, d.accumulator(bias)}, attributes, bias_name));
    }
    if (d.requires_grad(x)) {
      const std::string x_name = d.program()[x].name + ".grad";
      d.accumulate_grad(x, b.emit_one("linear_input_grad", {dy, w, d.accumulator(x)}, {}, x_name));
    }
    if (const TensorId sum = input_of(forward, sum_of_linear); sum != no_tensor && d.requires_grad(sum))
      d.accumulate_grad(sum, dy);
  }
  int updates_in_place(int /*output*/) const noexcept override { return sum_of_linear; }
  bool takes_strided_view(int input) const noexcept override { return input == sum_of_linear; }
  bool makes_strided_view(int /*output*/) const noexcept override { return true; }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = product_flops(program, i.inputs[0], i.inputs[1]);
    return cost;
  }
};

}  // namespace

void register_linear(OpRegistry& registry) {
  registry.add(std::make_unique<Linear>());
  registry.add(std::make_unique<LinearInputGrad>());
  registry.add(std::make_unique<LinearWeightGrad>());
  registry.add(std::make_unique<LinearBiasGrad>());
}

}  // namespace consist::ops
