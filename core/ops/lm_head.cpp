// The product of an LM head and what is read of its logits, in chunks of tokens, so that they are never stored whole:
// lm_head_loss, the cross-entropy, with a version that makes loss and gradients in one pass, and lm_head_log_probability, which
// leaves the gradient by each token to others and makes the logits once more for it.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

class LmHead : public NamedOp {
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
  /// Adds the types of the gradients of x and of w, whose sum so far is input `sum`.
  void infer_gradients(Types& made, const Types& in, const Attributes& attributes, std::size_t sum) const {
    made.push_back(in[0]);
    if (attributes.integer_or(only_weight, 0) != 0) made.back().reset();
    made.emplace_back();
    if (const std::optional<DType> gradient = weight_gradient_dtype(attributes)) {
      made.back() = TensorType{*gradient, in[1]->shape};
      check(in, sum, *made.back());
    }
    require(made.back() || !has(in, sum), "there is a sum of the weight's gradients, which attribute 'dtype' does not ask for");
  }
  /// The gradients that are wanted, as infer_gradients() reads them.
  static void ask_for_gradients(Differentiator& d, Attributes& attributes, TensorId x, TensorId w) {
    if (d.requires_grad(w)) attributes.set("dtype", dtype_value(d.gradient_dtype(w)));
    if (!d.requires_grad(x)) attributes.set(only_weight, std::int64_t{1});
  }
  static void accumulate(Differentiator& d, TensorId x, TensorId dx, TensorId w, TensorId dw) {
    if (dx != no_tensor) d.accumulate_grad(x, dx);
    if (dw != no_tensor) d.accumulate_grad(w, dw);
  }
  /// `first`: of the outputs that are gradients.
  static double products_of_gradients(const Instruction& i, std::size_t first) {
    return 1.0 + (i.outputs[first] != no_tensor ? 1 : 0) + (i.outputs[first + 1] != no_tensor ? 1 : 0);
  }
  static Cost products(const Program& program, const Instruction& i, double count, Cost cost) {
    cost.flops = count * 2.0 * static_cast<double>(program.local(i.inputs[0]).rows()) *
                 static_cast<double>(program.local(i.inputs[1]).elements());
    return cost;
  }
};

class LmHeadLossGrad final : public LmHead {
 public:
  LmHeadLossGrad() : LmHead("lm_head_loss_grad") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check_inputs(in);
    Types made{scalar};
    infer_gradients(made, in, attributes, 3);
    return made;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement tokens = split(axis);
    axis.outputs = {summed_over_tokens(tokens), tokens, summed_over_tokens(tokens)};
    if (has(in, 3)) axis.inputs[3] = axis.outputs[2];
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    return products(program, i, products_of_gradients(i, 1), Op::cost(program, i));
  }
  int updates_in_place(int output) const noexcept override { return output == 2 ? 3 : -1; }
};

class LmHeadLoss final : public LmHead {
 public:
  LmHeadLoss() : LmHead("lm_head_loss") {}
  VocabularyUse vocabulary_use() const noexcept override { return VocabularyUse::loss; }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    check_inputs(in);
    return {scalar};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.outputs = {summed_over_tokens(split(axis))};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    if (!d.is_root(f.outputs[0])) fail("only a loss that is the root of the program can be differentiated");
    const TensorId x = f.inputs[0], w = f.inputs[1];
    const Program& program = d.program();
    Attributes attributes{{"scale", f.attributes.real("scale")}};
    ask_for_gradients(d, attributes, x, w);
    const std::vector<TensorId> out =
        d.build().emit("lm_head_loss_grad", {x, w, f.inputs[2], d.accumulator(w)}, attributes,
                       {program[f.outputs[0]].name, program[x].name + ".grad", program[w].name + ".grad"});
    d.replace_all_uses_with(f.outputs[0], out[0]);
    accumulate(d, x, out[1], w, out[2]);
  }
  Cost cost(const Program& program, const Instruction& i) const override { return products(program, i, 1, Op::cost(program, i)); }
};

constexpr std::size_t denominator_input = 3, seed_inputs = 4, sum_input = 6;  // of lm_head_log_probability_grad

/// Inputs: x, w, targets, the denominators of forward, the gradients of its outputs (each may be absent), sum?; outputs: dx?,
/// dw?.
class LmHeadLogProbabilityGrad final : public LmHead {
 public:
  LmHeadLogProbabilityGrad() : LmHead("lm_head_log_probability_grad") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check_inputs(in);
    const TensorType rows{DType::f32, in[2]->shape};
    present(in, denominator_input);
    for (std::size_t k = denominator_input; k < sum_input; ++k) check(in, k, rows);
    require(has(in, seed_inputs) || has(in, seed_inputs + 1), "there is a gradient of neither output");
    Types made;
    infer_gradients(made, in, attributes, sum_input);
    return made;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement tokens = split(axis);
    for (std::size_t k = denominator_input; k < sum_input; ++k) axis.inputs[k] = tokens;
    axis.outputs = {tokens, summed_over_tokens(tokens)};
    if (has(in, sum_input)) axis.inputs[sum_input] = axis.outputs[1];
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    return products(program, i, products_of_gradients(i, 0), Op::cost(program, i));
  }
  int updates_in_place(int output) const noexcept override { return output == 1 ? static_cast<int>(sum_input) : -1; }
};

/// Outputs by token: the log-probability of the target, 0 of one that is negative, and the logarithm of the softmax's
/// denominator.
class LmHeadLogProbability final : public LmHead {
 public:
  LmHeadLogProbability() : LmHead("lm_head_log_probability") {}

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    check_inputs(in);
    return Types(2, TensorType{DType::f32, in[2]->shape});
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.outputs.assign(2, split(axis));
  }
  bool gradient_reads_output(int output) const noexcept override { return output == 1; }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const TensorId x = f.inputs[0], w = f.inputs[1];
    const Program& program = d.program();
    Attributes attributes;
    ask_for_gradients(d, attributes, x, w);
    const std::vector<TensorId> inputs{
        x, w, f.inputs[2], f.outputs[1], d.gradient(f.outputs[0]), d.gradient(f.outputs[1]), d.accumulator(w)};
    const std::vector<TensorId> out = d.build().emit("lm_head_log_probability_grad", inputs, attributes,
                                                     {program[x].name + ".grad", program[w].name + ".grad"});
    accumulate(d, x, out[0], w, out[1]);
  }
  Cost cost(const Program& program, const Instruction& i) const override { return products(program, i, 1, Op::cost(program, i)); }
};

}  // namespace

void register_lm_head(OpRegistry& registry) {
  registry.add(std::make_unique<LmHeadLogProbability>());
  registry.add(std::make_unique<LmHeadLogProbabilityGrad>());
  registry.add(std::make_unique<LmHeadLoss>());
  registry.add(std::make_unique<LmHeadLossGrad>());
}

}  // namespace consist::ops
