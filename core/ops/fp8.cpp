// Products of 8-bit floats: a linear and its two gradients. Tensor cores take both operands of a product with the summed
// dimension last, so that tensors of which a gradient sums another dimension are kept transposed (core/ops/fp8_quantize.h).
#include "core/ops/core_ops.h"
#include "core/ops/fp8_quantize.h"

namespace consist::ops {
namespace {

constexpr const char* moved =
    "its operands are split differently; a quantized tensor does not move between ranks, since each has a scale of its own";

/// Base of the three products a bᵀ; operands 0 and 2 with their descales 1 and 3.
class Fp8Product : public NamedOp {
 public:
  /// `rows_are_channels`: the operands are transposed activations.
  explicit Fp8Product(std::string name, bool rows_are_channels = false)
      : NamedOp(std::move(name)), rows_are_channels_(rows_are_channels) {}

  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    const double summed = static_cast<double>(program.local(i.inputs[0]).elements() / rows(program.local(i.inputs[0])));
    cost.flops = 2.0 * summed * static_cast<double>(program.local(i.outputs[0]).elements());
    return cost;
  }

 protected:
  /// Rows of operand 0: the dimensions that are not summed.
  virtual std::int64_t rows(const Shape& shape) const = 0;

  /// Ranks of operands 0 and 2, and the types that their descales must have.
  void check_operands(const Types& in, int rank_a, int rank_b, const char* shapes, const Attributes& attributes) const {
    for (const std::size_t i : {std::size_t{0}, std::size_t{2}})
      require(is_float8(present(in, i).dtype), "operands must be e4m3 or e5m2");
    require(present(in, 0).dtype == DType::e4m3 || present(in, 2).dtype == DType::e4m3, "one operand must be e4m3");
    require(in[0]->shape.rank() == rank_a && in[2]->shape.rank() == rank_b, shapes);
    const OperandScalings scalings = operand_scalings(name(), attributes);
    for (const auto& [i, scaling] : {std::pair{std::size_t{0}, scalings.a}, {std::size_t{2}, scalings.b}}) {
      const Shape& operand = in[i]->shape;
      present(in, i + 1);
      check(in, i + 1, {DType::f32, rows_are_channels_ ? transposed_scales(scaling, back(operand)) : scales(scaling, operand)});
    }
  }

 private:
  /// The shape of the tensor whose transposed copy has shape `turned`.
  static Shape back(const Shape& turned) { return {turned[1], turned[2], turned[0]}; }
  bool rows_are_channels_;
};

class Fp8LinearInputGrad final : public Fp8Product {
 public:
  Fp8LinearInputGrad() : Fp8Product("fp8_linear_input_grad") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check_operands(in, 3, 2, "dy must be [batch, sequence, out] and wt [in, out]", attributes);
    const Shape &dy = in[0]->shape, &wt = in[2]->shape;
    require(dy[2] == wt[1], "the channels of dy are not the columns of wt");
    const TensorType out{dtype_attribute(attributes), {dy[0], dy[1], wt[0]}};
    check(in, 4, out);
    return {out};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement dy = axis.inputs[0], wt = axis.inputs[2];
    if (wt.is_shard(1)) {
      require(dy.is_shard(channels), moved);
      axis.outputs = {Placement::partial()};
    } else if (wt.is_shard(0)) {
      require(dy.is_replicate(), moved);
      axis.outputs = {Placement::shard(channels)};
    } else {
      require(wt.is_replicate() && (dy.is_replicate() || over_tokens(dy)), moved);
      axis.outputs = {dy};
    }
    if (has(in, 4)) axis.inputs[4] = axis.outputs[0];
  }
  int updates_in_place(int /*output*/) const noexcept override { return 4; }

 private:
  std::int64_t rows(const Shape& dy) const override { return dy.rows(); }
};

class Fp8LinearWeightGrad final : public Fp8Product {
 public:
  Fp8LinearWeightGrad() : Fp8Product("fp8_linear_weight_grad", true) {}
  bool makes_weight_gradients() const noexcept override { return true; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    check_operands(in, 3, 3, "dyt and xt must be [channels, batch, sequence]", attributes);
    const Shape &dyt = in[0]->shape, &xt = in[2]->shape;
    require(dyt[1] == xt[1] && dyt[2] == xt[2], "dyt and xt are of different tokens");
    const TensorType out{dtype_attribute(attributes), {dyt[0], xt[0]}};
    check(in, 4, out);
    return {out};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement dyt = axis.inputs[0], xt = axis.inputs[2];
    if (dyt.is_shard(0)) {
      require(xt.is_replicate(), moved);
      axis.outputs = {Placement::shard(out_dim)};
    } else if (xt.is_shard(0)) {
      require(dyt.is_replicate(), moved);
      axis.outputs = {Placement::shard(in_dim)};
    } else {
      require(dyt == xt, moved);
      axis.outputs = {xt.is_shard() ? Placement::partial() : xt};
    }
    if (has(in, 4)) axis.inputs[4] = axis.outputs[0];
  }
  int updates_in_place(int /*output*/) const noexcept override { return 4; }

 private:
  std::int64_t rows(const Shape& dyt) const override { return dyt[0]; }
};

class Fp8Linear final : public Fp8Product {
 public:
  Fp8Linear() : Fp8Product("fp8_linear") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check_operands(in, 3, 2, "x must be [batch, sequence, in] and w [out, in]", attributes);
    const Shape &x = in[0]->shape, &w = in[2]->shape;
    require(x[2] == w[1], "the channels of x are not the columns of w");
    const DType type = dtype_attribute(attributes);
    check(in, 4, {type, {w[0]}});
    return {TensorType{type, {x[0], x[1], w[0]}}};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement x = axis.inputs[0], w = axis.inputs[2];
    Placement bias = Placement::replicate();
    if (w.is_shard(out_dim)) {
      require(x.is_replicate(), moved);
      bias = Placement::shard(0);
      axis.outputs = {Placement::shard(channels)};
    } else if (w.is_shard(in_dim)) {
      require(!has(in, 4), "a linear with a bias cannot be split along its inputs: the bias would be added once per rank");
      require(x.is_shard(channels), moved);
      axis.outputs = {Placement::partial()};
    } else {
      require(w.is_replicate() && (x.is_replicate() || over_tokens(x)), moved);
      axis.outputs = {x};
    }
    if (has(in, 4)) axis.inputs[4] = bias;
  }
  void differentiate(Differentiator& d, const Instruction& forward) const override {
    const QuantizedSource x = quantized_source(*this, d, forward.inputs[0]), w = quantized_source(*this, d, forward.inputs[2]);
    const TensorId bias = input_of(forward, 4), y = forward.outputs[0];
    Builder& b = d.build();
    const bool fast = forward.attributes.integer("fast_gradients") != 0;
    const TensorId dy = gradient_as_placed(d, y);
    const Quantized g = quantize(b, dy, gradient_settings(forward, d.program()[w.tensor].name));
    const auto attributes = [&](DType type) {
      Attributes made{{"dtype", dtype_value(type)}, {"fast_accumulation", std::int64_t{fast ? 1 : 0}}};
      if (forward.attributes.has("scaling")) made.set("scaling", forward.attributes.string("scaling"));
      return made;
    };
    if (d.requires_grad(w.made.value)) {
      const std::string name = d.program()[w.tensor].name + ".grad";
      d.accumulate_grad(w.made.value, b.emit_one("fp8_linear_weight_grad",
                                                 {g.transposed, g.transposed_descale, x.made.transposed,
                                                  x.made.transposed_descale, d.accumulator(w.made.value)},
                                                 attributes(d.gradient_dtype(w.tensor)), name));
    }
    if (bias != no_tensor && d.requires_grad(bias)) {
      d.accumulate_grad(bias, b.emit_one("linear_bias_grad", {dy, d.accumulator(bias)},
                                         {{"dtype", dtype_value(d.gradient_dtype(bias))}}, d.program()[bias].name + ".grad"));
    }
    if (d.requires_grad(x.made.value)) {
      const std::string name = d.program()[x.tensor].name + ".grad";
      d.accumulate_grad(x.made.value, b.emit_one("fp8_linear_input_grad",
                                                 {g.value, g.descale, w.made.transposed, w.made.transposed_descale,
                                                  d.accumulator(x.made.value)},
                                                 attributes(d.program()[y].dtype), name));
    }
  }

 private:
  std::int64_t rows(const Shape& x) const override { return x.rows(); }
};

}  // namespace

void register_fp8(OpRegistry& registry) {
  register_fp8_quantize(registry);
  registry.add(std::make_unique<Fp8Linear>());
  registry.add(std::make_unique<Fp8LinearInputGrad>());
  registry.add(std::make_unique<Fp8LinearWeightGrad>());
  register_fp8_grouped(registry);
}

}  // namespace consist::ops
