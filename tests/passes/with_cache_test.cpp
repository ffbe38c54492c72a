// The pass that makes programs of generation: what they hold, and what it refuses by name.
#include "core/compile/with_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "consist/error.h"
#include "core/compile/compile.h"
#include "tests/program/plain_precision.h"
#include "tests/program/tiny_model.h"

namespace consist {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t longest = 48;

Program compiled(const Architecture& model, std::int64_t tokens, bool logits, std::vector<StrategyUse> strategies = {},
                 int ranks = 1, DTypes dtypes = {}) {
  const test::PlainPrecision precision(dtypes);
  const CompileRequest request{.architecture = &model,
                               .precision = &precision,
                               .strategies = strategies,
                               .ranks = ranks,
                               .micro_batch = 1,
                               .sequence = longest,
                               .fields = {{"document_start", DType::i32}}};
  return compile_stretch(request, lay_out(strategies, ranks), tokens, logits);
}

int count(const Program& program, std::string_view op) {
  return static_cast<int>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                        [&](const Instruction& i) { return i.op->name() == op; }));
}

TEST(WithCache, AttentionReadsCachesThatKeepTheirValues) {
  const test::TinyModel model;
  const Program program = compiled(model, 1, true, {}, 1, test::mixed_bf16);
  EXPECT_EQ(program[program.find("ids")].shape, (Shape{1, 1}));
  EXPECT_EQ(program[program.find(position_name)].shape, Shape{1});
  int attentions = 0;
  for (const Instruction& i : program.instructions) {
    if (!i.op->attends()) continue;
    ++attentions;
    ASSERT_EQ(i.inputs.size(), 5U);
    EXPECT_EQ(program[i.inputs[0]].shape, (Shape{1, 1, 16}));
    for (const std::size_t cache : {1U, 2U}) {
      const Tensor& tensor = program[i.inputs[cache]];
      EXPECT_EQ(tensor.shape, (Shape{1, longest, 8}));
      EXPECT_EQ(tensor.dtype, DType::bf16);
      EXPECT_TRUE(program[tensor.storage].state);
    }
    EXPECT_EQ(i.inputs[3], no_tensor) << "fields of a dataset are not there";
    EXPECT_EQ(program[i.inputs[4]].name, position_name);
  }
  EXPECT_EQ(attentions, 2);
  EXPECT_EQ(count(program, "write_rows"), 4);
  EXPECT_EQ(count(program, "rows_at"), 1) << "one table, whatever reads it";
  const Tensor& logits = program[program.find(logits_name)];
  EXPECT_EQ(logits.shape, (Shape{1, 1, 32}));
  EXPECT_EQ(logits.dtype, DType::f32);
  EXPECT_EQ(logits.role, Role::metric);
}

TEST(WithCache, APromptMakesNothingButCaches) {
  const test::TinyModel model;
  const Program prompt = compiled(model, 16, false), next = compiled(model, 1, true);
  EXPECT_EQ(prompt.find(logits_name), no_tensor);
  EXPECT_EQ(count(prompt, "write_rows"), 4);
  EXPECT_EQ(count(prompt, "attention"), 1) << "what the last layer's attention gives nobody reads";
  EXPECT_LT(prompt.instructions.size(), next.instructions.size());
}

/// Makes of each token what its traits say.
class TokenOp final : public Op {
 public:
  TokenOp(const char* name, Separable separable) : name_(name), separable_(separable) {}
  std::string_view name() const noexcept override { return name_; }
  Separable separable() const noexcept override { return separable_; }
  Types infer(const Types& inputs, const Attributes& /*attributes*/) const override { return {inputs[0]}; }
  void shard(AxisSharding& axis, const Types& /*inputs*/, const Attributes& /*attributes*/) const override {
    axis.outputs = axis.inputs;
  }

 private:
  const char* name_;
  Separable separable_;
};

/// The tiny model behind an op of a plugin.
class WithOp final : public Architecture {
 public:
  explicit WithOp(std::string op) : op_(std::move(op)) {}
  ModelSizes sizes() const override { return inner_.sizes(); }
  std::string config_json() const override { return "{}"; }
  TensorId build(Builder& b, TensorId ids, TensorId targets, double scale) const override {
    return inner_.build(b, b.emit_one(op_, {ids}, {}, "mixed"), targets, scale);
  }

 private:
  test::TinyModel inner_;
  std::string op_;
};

TEST(WithCache, AnOpOfAPluginMustSayThatItWorksOnEachToken) {
  registry().add(std::make_unique<TokenOp>("test_mixes_tokens", Separable::sequences));
  registry().add(std::make_unique<TokenOp>("test_each_token", Separable::tokens));
  EXPECT_THAT([] { compiled(WithOp("test_mixes_tokens"), 1, true); },
              ThrowsMessage<UsageError>(HasSubstr("nothing says whether op 'test_mixes_tokens' works on each token by itself")));
  EXPECT_EQ(count(compiled(WithOp("test_each_token"), 1, true), "test_each_token"), 1);
}

/// The same of an op on a weight.
class WithOpOnWeight final : public Architecture {
 public:
  ModelSizes sizes() const override { return {}; }
  std::string config_json() const override { return "{}"; }
  TensorId build(Builder& b, TensorId ids, TensorId targets, double scale) const override {
    const TensorId table = b.emit_one("test_of_weights", {b.parameter("embed.weight", {32, 16}, 0, 0.02F, true)}, {}, "table");
    const TensorId x = layers::embedding(b, ids, table, "embed");
    return layers::lm_head_loss(b, layers::attention(b, x, x, x, 16, "attention"), table, targets, scale, "loss");
  }
};

TEST(WithCache, AnOpThatSeesNoTokenNeedSayNothing) {
  registry().add(std::make_unique<TokenOp>("test_of_weights", Separable::no));
  EXPECT_EQ(count(compiled(WithOpOnWeight(), 1, true), "test_of_weights"), 1);
}

/// No op makes logits.
class WithoutHead final : public Architecture {
 public:
  ModelSizes sizes() const override { return {}; }
  std::string config_json() const override { return "{}"; }
  TensorId build(Builder& b, TensorId ids, TensorId /*targets*/, double /*scale*/) const override {
    const TensorId table = b.parameter("embed.weight", {32, 16}, 0, 0.02F, true);
    return b.emit_one("sum_of_squares", {layers::embedding(b, ids, table, "embed")}, {}, "loss");
  }
};

TEST(WithCache, AModelMustEndInLogits) {
  EXPECT_THAT([] { compiled(WithoutHead(), 1, true); },
              ThrowsMessage<UsageError>(HasSubstr("the model ends in no op whose trait says that it makes logits")));
}

/// Divides tensors of tokens along a dimension.
class Divides final : public ParallelStrategy {
 public:
  explicit Divides(int dim) : dim_(dim) {}
  AxisRequest axis() const override { return {.name = "data", .takes_rest = true, .splits_batch = dim_ == 0}; }
  void partition(Program& forward, AxisSet axes) const override {
    for (Tensor& tensor : forward.tensors) {
      if (tensor.role == Role::input && !tensor.state) tensor.placements.set(axes, Placement::shard(dim_));
    }
  }

 private:
  int dim_;
};

TEST(WithCache, SequencesMayLieOnSeveralRanksButNotInParts) {
  const test::TinyModel model;
  const Divides tokens(1), batch(0);
  EXPECT_THAT([&] { compiled(model, 1, true, {{.name = "divides", .strategy = &tokens}}, 2); },
              ThrowsMessage<UsageError>(HasSubstr("the layout divides the tokens of a sequence over the ranks of axis 'data'")));
  const Program program = compiled(model, 1, true, {{.name = "divides", .strategy = &batch}}, 2);
  const TensorId ids = program.find("ids");
  EXPECT_EQ(program[ids].shape, (Shape{2, 1}));
  EXPECT_EQ(program.local(ids), (Shape{1, 1}));
  for (const Tensor& tensor : program.tensors) {
    if (tensor.name.starts_with("generate.keys")) EXPECT_TRUE(tensor.placements[0].is_shard(0));
  }
}

}  // namespace
}  // namespace consist
