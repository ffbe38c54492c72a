// lm_head_loss: linear and cross-entropy in chunks of tokens, and the version that makes loss and gradients in one pass.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

class LmHeadLossBase : public NamedOp {
 public:
  using NamedOp::NamedOp;

 protected:
  void check_inputs(const Types& in) const {
    const TensorType& x = present(in, 0);
    const TensorType& w = present(in, 1);
    require(x.shape.rank() == 3 && w.shape.rank() == 2 && x.shape[2] == w.shape[1] && x.dtype == w.dtype,
            "x must be [batch, sequence, channels] and w [vocabulary, channels] of the same dtype");
    present(in, 2);
    check(in, 2, {DType::i32, {x.shape[0], x.shape[1]}});
  }
  static Placement split(AxisSharding& axis) {
    const Placement tokens = over_tokens(axis.inputs[0]) ? axis.inputs[0] : Placement::replicate();
    axis.inputs[0] = axis.inputs[2] = tokens;
    axis.inputs[1] = Placement::replicate();
    return tokens;
  }
  static Cost products(const Program& program, const Instruction& i, double count, Cost cost) {
    cost.flops = count * 2.0 * static_cast<double>(program.local(i.inputs[0]).rows()) *
                 static_cast<double>(program.local(i.inputs[1]).elements());
    return cost;
  }
};

class LmHeadLossGrad final : public LmHeadLossBase {
 public:
  LmHeadLossGrad() : LmHeadLossBase("lm_head_loss_grad") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check_inputs(in);
    Types made{TensorType{DType::f32, {}}, *in[0], std::nullopt};
    if (attributes.integer_or(only_weight, 0) != 0) made[1].reset();
    if (const std::optional<DType> gradient = weight_gradient_dtype(attributes)) {
      made[2] = TensorType{*gradient, in[1]->shape};
      check(in, 3, *made[2]);
    }
    require(made[2] || !has(in, 3), "there is a sum of the weight's gradients, which attribute 'dtype' does not ask for");
    return made;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement tokens = split(axis);
    axis.outputs = {summed_over_tokens(tokens), tokens, summed_over_tokens(tokens)};
    if (has(in, 3)) axis.inputs[3] = axis.outputs[2];
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    const double count = 1.0 + (i.outputs[1] != no_tensor ? 1 : 0) + (i.outputs[2] != no_tensor ? 1 : 0);
    return products(program, i, count, Op::cost(program, i));
  }
  int updates_in_place(int output) const noexcept override { return output == 2 ? 3 : -1; }
};

class LmHeadLoss final : public LmHeadLossBase {
 public:
  LmHeadLoss() : LmHeadLossBase("lm_head_loss") {}
  VocabularyUse vocabulary_use() const noexcept override { return VocabularyUse::loss; }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    check_inputs(in);
    return {TensorType{DType::f32, {}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.outputs = {summed_over_tokens(split(axis))};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    if (!d.is_root(f.outputs[0])) fail("only a loss that is the root of the program can be differentiated");
    const TensorId x = f.inputs[0], w = f.inputs[1];
    const Program& program = d.program();
    Attributes attributes{{"scale", f.attributes.real("scale")}};
    if (d.requires_grad(w)) attributes.set("dtype", dtype_value(d.gradient_dtype(w)));
    if (!d.requires_grad(x)) attributes.set(only_weight, std::int64_t{1});
    const std::vector<TensorId> out =
        d.build().emit("lm_head_loss_grad", {x, w, f.inputs[2], d.accumulator(w)}, attributes,
                       {program[f.outputs[0]].name, program[x].name + ".grad", program[w].name + ".grad"});
    d.replace_all_uses_with(f.outputs[0], out[0]);
    if (out[1] != no_tensor) d.accumulate_grad(x, out[1]);
    if (out[2] != no_tensor) d.accumulate_grad(w, out[2]);
  }
  Cost cost(const Program& program, const Instruction& i) const override { return products(program, i, 1, Op::cost(program, i)); }
};

}  // namespace

void register_lm_head_loss(OpRegistry& registry) {
  registry.add(std::make_unique<LmHeadLoss>());
  registry.add(std::make_unique<LmHeadLossGrad>());
}

}  // namespace consist::ops
