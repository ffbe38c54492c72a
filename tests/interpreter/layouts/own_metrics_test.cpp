// Numbers that a model reports of its own: what all ranks and micro-batches add up to is what one rank finds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/layers.h"
#include "core/plan/plan.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

using ::testing::HasSubstr;

/// A model that reports what it is asked to.
class Reporting final : public Architecture {
 public:
  using Report = std::function<void(Builder&)>;
  Reporting(std::shared_ptr<const Architecture> model, Report report) : model_(std::move(model)), report_(std::move(report)) {}
  ModelSizes sizes() const override { return model_->sizes(); }
  std::string config_json() const override { return model_->config_json(); }
  TensorId build(Builder& b, TensorId ids, TensorId targets, double scale) const override {
    const TensorId loss = model_->build(b, ids, targets, scale);
    const Tag tag = b.tag;
    report_(b);
    b.tag = tag;
    return loss;
  }

 private:
  std::shared_ptr<const Architecture> model_;
  Report report_;
};

TensorId tensor_called(Builder& b, const std::string& name) {
  const TensorId found = b.program().find(name);
  if (found == no_tensor) throw ProgramError("the model has no '" + name + "'");
  return found;
}

/// The name of that which the MLP of a layer, or its mixture, adds to the residual stream.
std::string mlp(Builder& b, int layer) {
  const std::string name = "model.layers." + std::to_string(layer) + ".mlp";
  return b.program().find(name) == no_tensor ? name + ".down_proj" : name;
}

/// The mean square of a tensor's elements, made in the layer or behind all of them; the number of elements, and what one tensor
/// counts for two metrics.
void report_square(Builder& b, const std::string& name, const std::string& of, std::int16_t layer) {
  b.tag.layer = layer;
  const TensorId x = tensor_called(b, of), count = layers::total(b, "select(1+a*a,1,0)", {x}, name + ".elements");
  b.metric(name + "_square", layers::total(b, "a*a", {x}, name + ".squares"), count, "mean square", "1");
  b.metric(name + "_positive", layers::total(b, "greater(a,0)", {x}, name + ".positive"), count);
}

void report(Builder& b) {
  report_square(b, "first", mlp(b, 0), 0);
  report_square(b, "late", "model.layers.0.self_attn", -1);
  report_square(b, "last", mlp(b, 1), 1);
  report_square(b, "weight", "model.layers.0.self_attn.o_proj.weight", 0);
  b.tag.layer = 1;
  b.metric("elements", layers::total(b, "select(1+a*a,1,0)", {tensor_called(b, mlp(b, 1))}, "elements"));
}

std::unique_ptr<RankPrograms> programs(const ModelChoice& model, const Words& words, const Reporting::Report& report) {
  const Plan plan = plan_run(config_of(model, words), plugin_host());
  RunConfig config = plan.config();
  Parts parts = plan.parts();
  parts.architecture = std::make_shared<Reporting>(parts.architecture, report);
  return compile(std::move(config), std::move(parts), 64);
}

void expect_what_one_rank_finds(const ModelChoice& model, const Words& words) {
  SCOPED_TRACE(text_of(model, words));
  try {
    const Outcome found = run(*programs(model, words, report), {.order = 3});
    const Outcome expected = run(*programs(model, {}, report), {}), silent = run(*programs(model, {}, [](Builder&) {}), {});
    EXPECT_EQ(expected.losses, silent.losses);
    EXPECT_EQ(expected.values, silent.values);
    ASSERT_EQ(expected.metrics.size(), 9U);
    ASSERT_EQ(found.metrics.size(), expected.metrics.size());
    for (const auto& [name, values] : expected.metrics) {
      const std::vector<double>& here = found.metrics.at(name);
      ASSERT_EQ(here.size(), values.size()) << name;
      for (std::size_t step = 0; step < values.size(); ++step)
        EXPECT_NEAR(here[step], values[step], prove::tolerance * std::abs(values[step])) << name << ", step " << step + 1;
    }
    EXPECT_EQ(found.losses.size(), expected.losses.size());
    for (std::size_t step = 0; step < found.losses.size(); ++step)
      EXPECT_NEAR(found.losses[step], expected.losses[step], prove::tolerance * expected.losses[step]);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(OwnMetrics, AreTheSameInEveryLayout) {
  for (const Words& words :
       {Words{"--accumulation=2"}, Words{"--strategy=ddp", "--ranks=2", "--accumulation=2"},
        Words{"--strategy=zero2", "--ranks=2", "--accumulation=2"}, Words{"--strategy=zero3-offload", "--ranks=2"},
        Words{"--strategy=tp-sp=2", "--ranks=2"}, Words{"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.sequence-parallel=false"},
        Words{"--strategy=tp-sp=2+ddp=2", "--ranks=4", "--accumulation=2"}, Words{"--strategy=cp=2", "--ranks=2"},
        Words{"--strategy=ddp", "--ranks=2", "--recompute=full"}})
    expect_what_one_rank_finds(llama, words);
}

TEST(OwnMetrics, AreTheSameInEveryPipeline) {
  const ModelChoice deep{"llama-tied", R"({"num_hidden_layers": 4})"};  // chunks of a layer each
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"}) {
    const Words more{"--accumulation=4", "--pipeline.schedule=" + std::string(schedule)};
    expect_what_one_rank_finds(deep, Words{"--strategy=pipeline=2", "--ranks=2"} + more);
    expect_what_one_rank_finds(deep, Words{"--strategy=zero2+pipeline=2", "--ranks=4"} + more);
  }
  expect_what_one_rank_finds(llama, {"--strategy=tp-sp=2+pipeline=2", "--ranks=4", "--accumulation=2"});
  expect_what_one_rank_finds(llama, {"--strategy=pipeline=2", "--ranks=2", "--accumulation=2", "--recompute=full"});
}

TEST(OwnMetrics, AreTheSameOfMixtures) {
  expect_what_one_rank_finds(four_experts, {"--strategy=ep=2", "--ranks=2", "--accumulation=2"});
  expect_what_one_rank_finds(four_experts, {"--strategy=pipeline=2", "--ranks=2", "--accumulation=2"});
}

std::string refusal(const Reporting::Report& report) {
  try {
    programs(llama, {}, report);
  } catch (const ProgramError& error) {
    return error.what();
  }
  return "nothing was refused";
}

/// The mean square of what the MLP of a layer adds, times a weight of layer 0.
Reporting::Report scaled(int layer) {
  return [layer](Builder& b) {
    const TensorId x = layers::total(b, "a*a", {tensor_called(b, mlp(b, layer))}, "squares");
    const TensorId w = layers::total(b, "a*a", {tensor_called(b, "model.layers.0.self_attn.o_proj.weight")}, "norm");
    b.metric("elements", layers::total(b, "select(1+a*a,1,0)", {tensor_called(b, mlp(b, layer))}, "elements"));
    b.metric("scaled", x, layers::total(b, "a*b", {x, w}, "product"));
  };
}

TEST(OwnMetrics, OfALateActivationAndAWeightOfAnEarlierStageAreRefused) {
  const Words pipeline{"--strategy=pipeline=2", "--ranks=2", "--accumulation=2"};
  EXPECT_NO_THROW(programs(llama, {}, scaled(1)));
  EXPECT_NO_THROW(programs(llama, pipeline, scaled(0))) << "both are of one stage";
  try {
    programs(llama, pipeline, scaled(1));
    FAIL() << "a rank would wait for ever for the gradient of the other";
  } catch (const UsageError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr("the metric 'scaled' reads 'model.layers.0.self_attn.o_proj.weight' in a stage that does not train it"));
  }
  // Nobody exchanges gradients of a frozen weight.
  EXPECT_NO_THROW(programs(llama, pipeline + Words{"--freeze=model.layers.0.self_attn.o_proj.weight"}, scaled(1)));
}

TEST(OwnMetrics, NamesAndTensorsThatDoNotFitAreRefused) {
  const auto called = [](const std::string& name) {
    return refusal([name](Builder& b) {
      const TensorId sum = layers::total(b, "a*a", {tensor_called(b, mlp(b, 0))}, "sum");
      b.metric(name, sum);
      b.metric("twice", sum);
    });
  };
  EXPECT_EQ(called("once"), "nothing was refused");
  EXPECT_THAT(called("twice"), HasSubstr("the metric 'twice' is reported twice"));
  EXPECT_THAT(called("grad_norm"), HasSubstr("the metric 'grad_norm' has the name of a column that a run records itself"));
  EXPECT_THAT(called("device_power"), HasSubstr("has the name of a column"));
  for (const char* name : {"", "Accuracy", "a.b", "2nd", "a/b"}) EXPECT_THAT(called(name), HasSubstr("is no name")) << name;
  EXPECT_THAT(refusal([](Builder& b) { b.metric("rows", tensor_called(b, mlp(b, 0))); }),
              HasSubstr("the metric 'rows' is given 'model.layers.0.mlp.down_proj'"));
}

}  // namespace
}  // namespace consist::interpreter
