// Models with ops of their own, which say little of themselves: what a layout makes of them is what one rank does, or it is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/layers.h"
#include "core/interpreter/compute.h"
#include "core/interpreter/work.h"
#include "core/plan/plan.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int sequence_dim = 1;

/// One output like input 0; tokens may be divided along the dimensions in `cut`.
class LikeInput : public Op {
 public:
  LikeInput(const char* name, std::vector<int> cut, TokenOrder order, const char* gradient)
      : name_(name), cut_(std::move(cut)), order_(order), gradient_(gradient) {}
  std::string_view name() const noexcept override { return name_; }
  TokenOrder token_order() const noexcept override { return order_; }
  Types infer(const Types& in, const Attributes& /*attributes*/) const override { return {in.at(0)}; }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const auto fits = [&](int dim) { return axis.inputs[0].is_shard(dim); };
    if (std::none_of(cut_.begin(), cut_.end(), fits)) axis.inputs[0] = Placement::replicate();
    axis.outputs = {axis.inputs[0]};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    d.accumulate_grad(f.inputs[0], d.build().emit_one(gradient_, {d.gradient(f.outputs[0])}, {}, "own.grad"));
  }

 private:
  const char* name_;
  std::vector<int> cut_;
  TokenOrder order_;
  const char* gradient_;
};

/// A loss beside the loss: the sum over tokens of x times row 0 of the table, times "scale". Its gradients have no accumulators.
class Penalty : public Op {
 public:
  explicit Penalty(bool gradient) : gradient_(gradient) {}
  std::string_view name() const noexcept override { return gradient_ ? "own_penalty_grad" : "own_penalty"; }
  TokenOrder token_order() const noexcept override { return TokenOrder::any; }
  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    if (gradient_) return {in.at(0), in.at(1)};
    return {TensorType{DType::f32, {}}};
  }
  /// Sequences may be divided, their tokens may not.
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    if (!axis.inputs[0].is_shard(0)) axis.inputs[0] = Placement::replicate();
    axis.inputs[1] = Placement::replicate();
    const Placement sum = axis.inputs[0].is_shard() ? Placement::partial() : Placement::replicate();
    axis.outputs = {sum};
    if (gradient_) axis.outputs = {axis.inputs[0], sum};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const std::vector<TensorId> made = d.build().emit("own_penalty_grad", f.inputs, f.attributes, {"x.grad", "table.grad"});
    d.accumulate_grad(f.inputs[0], made[0]);
    d.accumulate_grad(f.inputs[1], made[1]);
  }

 private:
  bool gradient_;
};

/// y of a token is x of it and of the one before; backward of it and of the one behind.
void neighbours(Work& w, int step) {
  const reference::Value x = w.in(0);
  reference::Value y = x;
  const std::int64_t length = x.shape[1], channels = x.shape[2];
  for (std::int64_t t = 0; t < x.shape[0] * length; ++t) {
    const std::int64_t other = t % length + step;
    if (other < 0 || other >= length) continue;
    for (std::int64_t c = 0; c < channels; ++c) y.at(t * channels + c) += x.at((t + step) * channels + c);
  }
  w.out(0, y);
}
void before(Work& w) {
  neighbours(w, -1);
}
void behind(Work& w) {
  neighbours(w, 1);
}
void twice(Work& w) {
  reference::Value y = w.in(0);
  for (double& value : y.data) value *= 2;
  w.out(0, y);
}
/// Scales by the position in the sequence, which follows from the rank's part.
void by_position(Work& w) {
  reference::Value y = w.in(0);
  const std::int64_t length = y.shape[1], channels = y.shape[2], first = w.in_origin(0, sequence_dim);
  for (std::int64_t i = 0; i < y.shape.elements(); ++i) y.at(i) *= 1 + 0.1 * static_cast<double>(first + i / channels % length);
  w.out(0, y);
}
void penalty(Work& w) {
  const reference::Value x = w.in(0), table = w.in(1);
  double sum = 0;
  for (std::int64_t i = 0; i < x.shape.elements(); ++i) sum += x.at(i) * table.at(i % table.shape[1]);
  w.out(0, sum * w.attributes().real("scale"));
}
void penalty_grad(Work& w) {
  const reference::Value x = w.in(0), table = w.in(1);
  const double scale = w.attributes().real("scale");
  const std::int64_t channels = table.shape[1];
  reference::Value dx = x, dw = reference::zeros(DType::f32, table.shape);
  for (std::int64_t i = 0; i < x.shape.elements(); ++i) {
    dx.at(i) = scale * table.at(i % channels);
    dw.at(i % channels) += scale * x.at(i);
  }
  w.out(0, dx);
  w.out(1, dw);
}

void register_ops() {
  static const bool once = [] {
    registry().add(std::make_unique<LikeInput>("own_before", std::vector{0, 2}, TokenOrder::fixed, "own_behind"));
    registry().add(std::make_unique<LikeInput>("own_behind", std::vector{0, 2}, TokenOrder::fixed, ""));
    registry().add(std::make_unique<LikeInput>("own_twice", std::vector{0, 1, 2}, TokenOrder::any, "own_twice"));
    registry().add(std::make_unique<LikeInput>("own_weight", std::vector<int>{}, TokenOrder::fixed, "own_weight"));
    registry().add(std::make_unique<LikeInput>("own_by_position", std::vector{0, 1, 2}, TokenOrder::fixed, "own_by_position"));
    registry().add(std::make_unique<Penalty>(false));
    registry().add(std::make_unique<Penalty>(true));
    for (const auto& [op, formula] : {std::pair<std::string_view, Formula>{"own_before", before},
                                      {"own_behind", behind},
                                      {"own_twice", twice},
                                      {"own_weight", twice},
                                      {"own_by_position", by_position},
                                      {"own_penalty", penalty},
                                      {"own_penalty_grad", penalty_grad}})
      add_formula(op, formula);
    return true;
  }();
  static_cast<void>(once);
}

/// Changes by a model to the operands of the loss, x [batch, sequence, channels] and the table; and beside the loss.
struct Change {
  std::function<void(Builder&, TensorId& x, TensorId& table)> operands = [](Builder&, TensorId&, TensorId&) {};
  bool penalty = false;
  bool branch = false;  ///< a linear of its own beside those of each MLP
};

/// A small tied decoder with a change.
class Changed final : public Architecture {
 public:
  explicit Changed(Change change) : change_(std::move(change)) { register_ops(); }
  ModelSizes sizes() const override {
    return {.layers = 1, .heads = 2, .kv_heads = 2, .head_dim = head_dim, .hidden = hidden, .ffn = 16, .vocabulary = 32};
  }
  std::string config_json() const override { return "{}"; }
  TensorId build(Builder& b, TensorId ids, TensorId targets, double scale) const override {
    const auto weight = [&](const char* name, std::int64_t out, std::int64_t in) {
      return b.parameter(name, {out, in}, 0, 0.02F, true);
    };
    const auto norm = [&](const char* name) { return b.parameter(name, {hidden}, 1, 0, false); };
    TensorId table = weight("embed", 32, hidden);
    const TensorId embedded = layers::embedding(b, ids, table, "embedded");
    b.tag.layer = 0;
    const layers::Normed first = layers::rms_norm(b, embedded, no_tensor, norm("norm1"), 1e-6, "norm1");
    const TensorId q = layers::linear(b, first.y, weight("q", hidden, hidden), no_tensor, "q");
    const TensorId k = layers::linear(b, first.y, weight("k", hidden, hidden), no_tensor, "k");
    const TensorId v = layers::linear(b, first.y, weight("v", hidden, hidden), no_tensor, "v");
    TensorId x = layers::attention(b, q, k, v, head_dim, "attention");
    x = layers::linear(b, x, weight("o", hidden, hidden), no_tensor, "o");
    const layers::Normed second = layers::rms_norm(b, x, first.residual, norm("norm2"), 1e-6, "norm2");
    const TensorId gate = layers::linear(b, second.y, weight("gate", 16, hidden), no_tensor, "gate");
    const TensorId up = layers::linear(b, second.y, weight("up", 16, hidden), no_tensor, "up");
    x = layers::linear(b, layers::swiglu(b, gate, up, "swiglu"), weight("down", hidden, 16), no_tensor, "down");
    if (change_.branch) {
      const TensorId low = layers::linear(b, second.y, weight("low", 4, hidden), no_tensor, "low");
      x = b.emit_one("add", {layers::linear(b, low, weight("high", hidden, 4), no_tensor, "high"), x}, {}, "sum");
    }
    b.tag.layer = -1;
    x = layers::rms_norm(b, x, second.residual, norm("norm"), 1e-6, "norm").y;
    change_.operands(b, x, table);
    const TensorId loss = layers::lm_head_loss(b, x, table, targets, scale, "loss");
    if (change_.penalty)
      b.program().add_output(StepOutput::Kind::auxiliary_loss,
                             b.emit_one("own_penalty", {x, table}, {{"scale", scale}}, "penalty"));
    return loss;
  }

 private:
  static constexpr std::int64_t hidden = 8, head_dim = 4;
  Change change_;
};

const ModelChoice any_model{"llama-tied"};  // its place in the plan is taken by another architecture

std::unique_ptr<RankPrograms> programs(const Change& change, const Words& words) {
  const Plan plan = plan_run(config_of(any_model, words), plugin_host());
  RunConfig config = plan.config();
  Parts parts = plan.parts();
  parts.architecture = std::make_shared<Changed>(change);
  return compile(std::move(config), std::move(parts), 64);
}

void expect_close(const std::string& what, const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(found[i] - expected[i]));
  }
  EXPECT_LE(worst, prove::tolerance * largest) << what;
}

void expect_what_one_rank_does(const Change& change, const Words& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  SCOPED_TRACE(text);
  try {
    const Outcome found = run(*programs(change, words), {.order = 3}), expected = run(*programs(change, {}), {});
    expect_close("the loss", found.losses, expected.losses);
    expect_close("the auxiliary loss", found.auxiliary_losses, expected.auxiliary_losses);
    EXPECT_EQ(found.metrics.size(), expected.metrics.size());
    for (const auto& [name, values] : expected.metrics) expect_close("the metric " + name, found.metrics.at(name), values);
    expect_close("the gradients' norm", found.grad_norms, expected.grad_norms);
    for (const auto& [name, values] : expected.values) expect_close(name, found.values.at(name), values);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

std::string refusal(const Change& change, const Words& words) {
  try {
    programs(change, words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}

Change through(const char* op) {
  return {.operands = [op](Builder& b, TensorId& x, TensorId& /*table*/) { x = b.emit_one(op, {x}, {}, "own"); }};
}

const Words cp{"--strategy=cp=2", "--ranks=2"};

// A sequence in zigzag order has other neighbours.
TEST(OwnOps, ThatMayLookAtNeighboursAreRefusedInZigzagOrder) {
  for (const char* attention : {"gather", "ring"}) {
    for (const char* op : {"own_before", "own_by_position"}) {
      EXPECT_THAT(
          refusal(through(op), cp + Words{"--cp.attention=" + std::string(attention)}),
          AllOf(HasSubstr("op '" + std::string(op) + "'"), HasSubstr("Op::token_order()"), HasSubstr("--cp.attention ulysses")));
    }
    expect_what_one_rank_does(through("own_twice"), cp + Words{"--cp.attention=" + std::string(attention)});
  }
  expect_what_one_rank_does(through("own_before"), cp + Words{"--cp.attention=ulysses"});
  expect_what_one_rank_does(through("own_by_position"), cp + Words{"--cp.attention=ulysses"});
}

TEST(OwnOps, OfWeightsSeeNoOrderOfTokens) {
  const Change change{
      .operands = [](Builder& b, TensorId& /*x*/, TensorId& table) { table = b.emit_one("own_weight", {table}, {}, "own"); }};
  expect_what_one_rank_does(change, cp);
}

TEST(OwnOps, AConstantInOrderOfPositionIsRefusedInZigzagOrder) {
  const Change change{.operands = [](Builder& b, TensorId& x, TensorId& /*table*/) {
    const TensorId places = b.constant("places", b[x].shape, [](std::span<float> out) {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i % 11);
    });
    x = b.emit_one("add", {x, places}, {}, "own");
  }};
  EXPECT_THAT(refusal(change, cp), HasSubstr("the constant 'places' lies in order of position"));
  expect_what_one_rank_does(change, cp + Words{"--cp.attention=ulysses"});
}

// Messages of tp-sp may give a rank any tokens of the batch, but not where an op looks at their positions.
TEST(OwnOps, KeepTheirTokensUnderTensorParallelism) {
  for (const char* op : {"own_by_position", "own_before", "own_twice"})
    expect_what_one_rank_does(through(op), {"--strategy=tp-sp=2", "--ranks=2", "--accumulation=2"});
}

// A gradient of all tokens and one of those of each rank come together in a tied table, and in an activation that is read both
// whole and in parts.
TEST(OwnOps, GradientsOfWholesAndSummandsAddUp) {
  const Change penalty{.penalty = true}, branch{.branch = true};
  for (const char* attention : {"gather", "ring", "ulysses"})
    expect_what_one_rank_does(penalty, cp + Words{"--cp.attention=" + std::string(attention), "--accumulation=2"});
  for (const char* sequence_parallel : {"true", "false"}) {
    for (const char* accumulation : {"1", "2"}) {
      const Words words{"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.sequence-parallel=" + std::string(sequence_parallel),
                        "--accumulation=" + std::string(accumulation)};
      expect_what_one_rank_does(penalty, words);
      expect_what_one_rank_does(branch, words);
    }
  }
  expect_what_one_rank_does(branch, cp);
  for (const char* strategy : {"ddp", "zero2", "zero3-offload", "tp-sp=2+ddp=2", "cp=2+zero2=2", "cp=2+tp-sp=2"}) {
    const bool four = std::string(strategy).find('+') != std::string::npos;
    const Words words{"--strategy=" + std::string(strategy), four ? "--ranks=4" : "--ranks=2", "--accumulation=2"};
    expect_what_one_rank_does(penalty, words);
    expect_what_one_rank_does(branch, words);
  }
}

/// A weight of the model's own, a sum with it by channels, and a cap.
Change with_expressions() {
  return {.operands = [](Builder& b, TensorId& x, TensorId& /*table*/) {
    const TensorId gain = b.parameter("gain", {b.program()[x].shape.last()}, 0.5F, 0.1F, false);
    const TensorId one_more = layers::map(b, "1+a", {gain}, "one_more");
    const auto parts = b.emit("map", {x, one_more}, {{"f", std::string("a*b[c];tanh(a/2)+b[c]/8")}}, {"scaled", "capped"});
    x = layers::map(b, "a+b", parts, "sum");
  }};
}

/// A linear with weights of its own.
TensorId linear(Builder& b, TensorId from, const std::string& name, std::int64_t out) {
  return layers::linear(b, from, b.parameter(name, {out, b.program()[from].shape.last()}, 0, 0.2F, true), no_tensor, name + ".y");
}

/// Latent attention: queries and keys of parts, of which one is the same for all heads, and values of another size.
Change with_latent_attention() {
  return {.operands = [](Builder& b, TensorId& x, TensorId& /*table*/) {
    const std::int64_t channels = b.program()[x].shape.last(), heads = 4;
    const std::vector<TensorId> q = layers::split(b, linear(b, x, "latent.q", heads * 6), {4, 2}, "q.parts");
    const std::vector<TensorId> low = layers::split(b, linear(b, x, "latent.low", 10), {8, 2}, "low.parts");
    const std::vector<TensorId> kv = layers::split(b, linear(b, low[0], "latent.kv", heads * 7), {4, 3}, "kv.parts");
    const TensorId turned = layers::map(b, "tanh(a)", {q[1]}, "turned");
    const TensorId mixed = layers::attention(b, layers::concat(b, {q[0], turned}, heads, "q.whole"),
                                             layers::concat(b, {kv[0]}, heads, "k.whole", {low[1]}), kv[1], 6, "latent");
    x = layers::map(b, "a+b", {x, linear(b, mixed, "latent.o", channels)}, "x.latent");
  }};
}

TEST(OwnOps, PartsOfHeadsGiveTheSameInEveryLayout) {
  for (const Words& words :
       {Words{"--strategy=ddp", "--ranks=2"}, Words{"--strategy=zero3-offload", "--ranks=2"},
        Words{"--strategy=tp-sp=2", "--ranks=2"}, Words{"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.sequence-parallel=false"},
        Words{"--strategy=tp-sp=2+ddp=2", "--ranks=4", "--accumulation=2"}, Words{"--strategy=cp=2", "--ranks=2"},
        Words{"--strategy=cp=2", "--ranks=2", "--cp.attention=ulysses"},
        Words{"--strategy=ddp", "--ranks=2", "--precision=bf16"}})
    expect_what_one_rank_does(with_latent_attention(), words);
}

/// Sums and the largest over channels, of the residual stream and of channels that tensor parallelism shards.
Change with_reductions() {
  return {.operands = [](Builder& b, TensorId& x, TensorId& /*table*/) {
    const std::int64_t channels = b.program()[x].shape.last();
    const TensorId wide = layers::map(b, "tanh(a)", {linear(b, x, "reduced.up", 12)}, "wide");
    const TensorId mean = layers::reduce(b, layers::Reduction::mean, "a*a", {wide}, "mean");
    const TensorId most = layers::reduce(b, layers::Reduction::max, "a", {wide}, "most");
    const TensorId normed = layers::map(b, "(a-b[r]/4)*rsqrt(c[r]+0.01)", {wide, most, mean}, "normed");
    const TensorId gain = b.parameter("reduced.gain", {channels}, 0.5F, 0.1F, false);
    const TensorId sum = layers::reduce(b, layers::Reduction::sum, "a*b[c]", {x, gain}, "sum");
    x = layers::map(b, "a*(1+b[r]/16)+c", {x, sum, linear(b, normed, "reduced.down", channels)}, "x.reduced");
  }};
}

TEST(OwnOps, ReductionsGiveTheSameInEveryLayout) {
  for (const Words& words :
       {Words{"--strategy=ddp", "--ranks=2"}, Words{"--strategy=zero3-offload", "--ranks=2"},
        Words{"--strategy=tp-sp=2", "--ranks=2"}, Words{"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.sequence-parallel=false"},
        Words{"--strategy=tp-sp=2+ddp=2", "--ranks=4", "--accumulation=2"}, Words{"--strategy=cp=2", "--ranks=2"},
        Words{"--strategy=ddp", "--ranks=2", "--precision=bf16"}})
    expect_what_one_rank_does(with_reductions(), words);
}

// One key/value head, which is a part of what a linear makes: repeating the linear's channels would repeat other ones.
TEST(OwnOps, APartOfAHeadIsNotRepeated) {
  const Change change{.operands = [](Builder& b, TensorId& x, TensorId& /*table*/) {
    const std::int64_t channels = b.program()[x].shape.last();
    const std::vector<TensorId> kv = layers::split(b, linear(b, x, "latent.kv", 7), {4, 3}, "kv.parts");
    const TensorId mixed = layers::attention(b, linear(b, x, "latent.q", channels), kv[0], kv[1], 4, "latent");
    x = layers::map(b, "a+b", {x, linear(b, mixed, "latent.o", channels)}, "x.latent");
  }};
  EXPECT_THAT(refusal(change, {"--strategy=tp-sp=2", "--ranks=2"}),
              HasSubstr("the number of key/value heads is 1, which 2 ranks cannot share"));
  EXPECT_THAT(refusal(change, cp + Words{"--cp.attention=ulysses"}), HasSubstr("no linear makes it as it is"));
}

TEST(OwnOps, ExpressionsGiveTheSameInEveryLayout) {
  for (const Words& words : {Words{"--strategy=ddp", "--ranks=2"}, Words{"--strategy=zero2", "--ranks=2"},
                             Words{"--strategy=zero3-offload", "--ranks=2"}, Words{"--strategy=tp-sp=2", "--ranks=2"},
                             Words{"--strategy=cp=2", "--ranks=2"}, Words{"--strategy=tp-sp=2+ddp=2", "--ranks=4"},
                             Words{"--strategy=ddp", "--ranks=2", "--precision=bf16"}})
    expect_what_one_rank_does(with_expressions(), words);
}

}  // namespace
}  // namespace consist::interpreter
