// rms_norm of x + residual, and its gradient. Where x arrives as partial sums (from a row-parallel linear) it takes the
// residual's placement, which is how tensor parallelism's all_reduce and sequence parallelism's reduce_scatter come about.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

Placement token_placement(Placement placement) {
  return over_tokens(placement) ? placement : Placement::replicate();
}

class RmsNormGrad final : public NamedOp {
 public:
  RmsNormGrad() : NamedOp("rms_norm_grad") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 1);
    require(x.shape.rank() == 3, "x must be [batch, sequence, channels]");
    check_present(in, 0, x);
    check_present(in, 2, {DType::f32, {x.shape[0], x.shape[1]}});
    check_present(in, 3, {x.dtype, {x.shape[2]}});
    check(in, 4, x);
    const std::optional<DType> gradient = weight_gradient_dtype(attributes);
    require(gradient || !has(in, 5), "there is a sum of the weight's gradients, which attribute 'dtype' does not ask for");
    if (!gradient) return {x, std::nullopt};
    TensorType dw{*gradient, {x.shape[2]}};
    check(in, 5, dw);
    return {x, dw};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement tokens = token_placement(axis.inputs[1]);
    axis.inputs[0] = axis.inputs[1] = axis.inputs[2] = tokens;
    axis.inputs[3] = Placement::replicate();
    axis.outputs = {tokens, summed_over_tokens(tokens)};
    if (has(in, 4)) axis.inputs[4] = tokens;
    if (has(in, 5)) axis.inputs[5] = axis.outputs[1];
  }
  int updates_in_place(int output) const noexcept override { return output == 0 ? 4 : 5; }
  bool updates_apart(int output) const noexcept override { return output == 0; }
};

class RmsNorm final : public NamedOp {
 public:
  RmsNorm() : NamedOp("rms_norm") {}
  Separable separable() const noexcept override { return Separable::tokens; }
  std::optional<ResidualSum> residual_sum() const noexcept override { return ResidualSum{}; }
  bool gradient_reads_output(int output) const noexcept override { return output != 0; }
  const Op* with_amax() const noexcept override {
    static const Op* const op = registry().find("rms_norm_amax");
    return op;
  }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 0);
    require(x.shape.rank() == 3, "x must be [batch, sequence, channels]");
    check(in, 1, x);
    present(in, 2);
    check(in, 2, {x.dtype, {x.shape[2]}});
    require(attributes.real("epsilon") > 0, "epsilon must be positive");
    TensorType rstd{DType::f32, {x.shape[0], x.shape[1]}};
    if (!has(in, 1)) return {x, std::nullopt, rstd};
    return {x, x, rstd};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement stream = has(in, 1) ? axis.inputs[1] : axis.inputs[0];
    const Placement tokens = token_placement(stream);
    axis.inputs[0] = tokens;
    if (has(in, 1)) axis.inputs[1] = tokens;
    axis.inputs[2] = Placement::replicate();
    axis.outputs = {tokens, tokens, tokens};
  }
  void differentiate(Differentiator& d, const Instruction& forward) const override {
    const TensorId x = forward.inputs[0], residual = input_of(forward, 1), w = forward.inputs[2];
    const TensorId sum = forward.outputs[1], rstd = forward.outputs[2];
    const TensorId normed = residual == no_tensor ? x : sum;
    const TensorId dy = d.gradient(forward.outputs[0]);
    Attributes attributes;
    if (d.requires_grad(w)) attributes.set("dtype", dtype_value(d.gradient_dtype(w)));
    // The gradient that bypasses the norm: of the sum where there is one, else of x itself (used again as the next residual).
    const TensorId passing = d.accumulator(normed);
    const std::vector<TensorId> out =
        d.build().emit("rms_norm_grad", {dy, normed, rstd, w, passing, d.accumulator(w)}, attributes,
                       {d.program()[normed].name + ".grad", d.program()[w].name + ".grad"});
    d.accumulate_grad(normed, out[0]);
    if (out[1] != no_tensor) d.accumulate_grad(w, out[1]);
    if (residual != no_tensor) {
      const TensorId dsum = d.gradient(sum);
      if (d.requires_grad(x)) d.accumulate_grad(x, dsum);
      if (d.requires_grad(residual)) d.accumulate_grad(residual, dsum);
    }
  }
};

}  // namespace

void register_rms_norm(OpRegistry& registry) {
  registry.add(std::make_unique<RmsNorm>());
  registry.add(std::make_unique<RmsNormGrad>());
}

}  // namespace consist::ops
