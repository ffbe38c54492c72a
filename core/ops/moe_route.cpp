// moe_route: chooses the experts of each token (Shazeer et al., 2017) and makes statistics of the choices: the number of tokens
// of each expert and its probability. count_choices: the choices of all routers in one tensor, a metric. balance_loss: the losses
// that keep routers balanced, from those statistics (Fedus et al., 2022; Zoph et al., 2022, for the z-loss). Gradients of both.
// By sigmoids with a bias, and within the best groups of experts: DeepSeek-V3 (DeepSeek-AI, 2024); the bias gets no gradient.
// Where a load is stated, a hash of each token's id chooses instead of the logits (Roller et al., 2021).
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

/// f32[2·experts + 1]: choices per expert, sums of probabilities per expert, the sum of squared logsumexps.
TensorType statistics_of(std::int64_t experts) {
  return {DType::f32, {2 * experts + 1}};
}

class Router : public NamedOp {
 public:
  using NamedOp::NamedOp;

 protected:
  const TensorType& logits(const Types& in, const Attributes& attributes) const {
    const TensorType& logits = present(in, 0);
    require(logits.shape.rank() == 3, "logits must be [batch, sequence, experts]");
    const std::int64_t choices = attributes.integer("choices"), normalize = attributes.integer("normalize");
    require(choices >= 1 && choices <= logits.shape[2], "choices must be at least 1 and at most the number of experts");
    require(normalize == 0 || normalize == 1, "normalize must be 0 or 1");
    check_groups(logits.shape[2], choices, attributes);
    return logits;
  }
  /// Groups of experts, of which some are kept.
  void check_groups(std::int64_t experts, std::int64_t choices, const Attributes& attributes) const {
    const std::int64_t sigmoid = attributes.integer_or("sigmoid", 0), groups = attributes.integer_or("groups", 1),
                       kept = attributes.integer_or("kept_groups", 1);
    require(sigmoid == 0 || sigmoid == 1, "sigmoid must be 0 or 1");
    require(groups >= 1 && kept >= 1 && kept <= groups, "kept_groups must be at least 1 and at most groups");
    if (groups == 1) return;
    require(sigmoid == 1, "groups of experts need sigmoid=1");
    require(experts % groups == 0 && experts / groups >= 2, "groups must be of two experts at least, all of as many");
    require(choices <= experts / groups * kept, "choices must be at most the number of experts in the kept groups");
  }
  static Shape chosen(const TensorType& logits, const Attributes& attributes) {
    return {logits.shape[0], logits.shape[1], attributes.integer("choices")};
  }
  static Placement tokens_of(const AxisSharding& axis) {
    return over_tokens(axis.inputs[0]) ? axis.inputs[0] : Placement::replicate();
  }
};

class RouteGrad final : public Router {
 public:
  RouteGrad() : Router("moe_route_grad") {}
  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = logits(in, attributes);
    check_present(in, 1, {DType::i32, chosen(x, attributes)});
    check(in, 2, {DType::f32, chosen(x, attributes)});
    check(in, 3, statistics_of(x.shape[2]));
    require(has(in, 2) || has(in, 3), "there is no gradient to pass on");
    return {x};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement tokens = tokens_of(axis);
    axis.inputs[0] = axis.inputs[1] = tokens;
    if (has(in, 2)) axis.inputs[2] = tokens;
    if (has(in, 3)) axis.inputs[3] = Placement::replicate();
    axis.outputs = {tokens};
  }
};

class Route final : public Router {
 public:
  Route() : Router("moe_route") {}
  bool gradient_reads_output(int output) const noexcept override { return output == 1; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = logits(in, attributes);
    if (has(in, 1) || has(in, 2)) {
      check_present(in, 1, {DType::i32, {x.shape[0], x.shape[1]}});
      const Shape& intervals = present(in, 2).shape;
      require(intervals.rank() == 3 && intervals[1] == 2 && intervals[2] == x.shape[2], "intervals must be [orders, 2, experts]");
      check_present(in, 2, {DType::f32, intervals});
      require(attributes.integer("router") >= 0, "attribute 'router' must not be negative");
    }
    if (has(in, 3)) {
      require(attributes.integer_or("sigmoid", 0) == 1, "a bias needs sigmoid=1");
      check_present(in, 3, {x.dtype, {x.shape[2]}});
    }
    return {TensorType{DType::f32, chosen(x, attributes)}, TensorType{DType::i32, chosen(x, attributes)},
            statistics_of(x.shape[2])};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement tokens = tokens_of(axis);
    axis.inputs[0] = tokens;
    if (has(in, 1)) axis.inputs[1] = tokens;
    for (const std::size_t whole : {std::size_t{2}, std::size_t{3}}) {
      if (has(in, whole)) axis.inputs[whole] = Placement::replicate();
    }
    axis.outputs = {tokens, tokens, summed_over_tokens(tokens)};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const TensorId logits = f.inputs[0];
    d.accumulate_grad(
        logits, d.build().emit_one("moe_route_grad", {logits, f.outputs[1], d.gradient(f.outputs[0]), d.gradient(f.outputs[2])},
                                   f.attributes, d.program()[logits].name + ".grad"));
  }
};

/// The choices of all routers, each in a row of its own.
class CountChoices final : public NamedOp {
 public:
  CountChoices() : NamedOp("count_choices") {}
  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& statistics = present(in, 0);
    const std::int64_t row = attributes.integer("row"), rows = attributes.integer("rows"),
                       experts = attributes.integer("experts");
    require(statistics.dtype == DType::f32 && statistics.shape.rank() == 1 && statistics.shape[0] % 2 == 1,
            "statistics must be f32[2·experts + 1]");
    require(row >= 0 && row < rows, "attribute 'row' must be one of 'rows'");
    require(statistics.shape[0] / 2 <= experts, "the router has more experts than attribute 'experts' says");
    const TensorType counts{DType::f32, {rows, experts}};
    check(in, 1, counts);
    return {counts};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    if (!axis.inputs[0].is_partial()) axis.inputs[0] = Placement::replicate();
    if (has(in, 1)) axis.inputs[1] = axis.inputs[0];
    axis.outputs = {axis.inputs[0]};
  }
  int updates_in_place(int /*output*/) const noexcept override { return 1; }
};

class Balance : public NamedOp {
 public:
  using NamedOp::NamedOp;
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    for (Placement& input : axis.inputs) input = Placement::replicate();  // a product of sums: it needs those of all tokens
    axis.outputs = {Placement::replicate()};
  }

 protected:
  const TensorType& statistics(const Types& in, const Attributes& attributes) const {
    const TensorType& statistics = present(in, 0);
    require(statistics.dtype == DType::f32 && statistics.shape.rank() == 1 && statistics.shape[0] % 2 == 1,
            "statistics must be f32[2·experts + 1]");
    check(in, 1, {DType::f32, {}});
    attributes.real("balance");
    attributes.real("z");
    return statistics;
  }
};

class BalanceLossGrad final : public Balance {
 public:
  BalanceLossGrad() : Balance("balance_loss_grad") {}
  Types infer(const Types& in, const Attributes& attributes) const override { return {statistics(in, attributes)}; }
};

class BalanceLoss final : public Balance {
 public:
  BalanceLoss() : Balance("balance_loss") {}
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    statistics(in, attributes);
    return {TensorType{DType::f32, {}}};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    if (!d.is_root(f.outputs[0])) fail("its result is used for something else than to be trained on");
    d.accumulate_grad(f.inputs[0],
                      d.build().emit_one("balance_loss_grad", f.inputs, f.attributes, d.program()[f.inputs[0]].name + ".grad"));
  }
};

}  // namespace

void register_moe_route(OpRegistry& registry) {
  registry.add(std::make_unique<Route>());
  registry.add(std::make_unique<RouteGrad>());
  registry.add(std::make_unique<CountChoices>());
  registry.add(std::make_unique<BalanceLoss>());
  registry.add(std::make_unique<BalanceLossGrad>());
}

}  // namespace consist::ops
