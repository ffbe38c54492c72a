// `consist prove` in this process: it holds for layouts that are right, says what it left of their sizes, and names the first instruction
// that goes wrong, and none where nothing does.
#include "core/prove/proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/op.h"
#include "core/config/optimizer_rules.h"
#include "core/prove/first_difference.h"
#include "core/prove/one_rank.h"
#include "core/prove/small_run.h"
#include "tests/interpreter/expect_one_rank.h"
#include "tests/interpreter/wrong_gradient.h"

namespace consist::prove {
namespace {

using interpreter::compile;
using interpreter::config_of;
using interpreter::ModelChoice;
using interpreter::plugin_host;
using interpreter::RankPrograms;
using interpreter::Words;
using interpreter::operator+;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// A run of the model at its size, as train states it.
RunConfig full_run(const std::string& model, const std::string& strategy, int ranks) {
  RunConfig config;
  config.model = model;
  config.strategies = parse_strategies(strategy);
  config.ranks = ranks;
  config.precision = "bf16";
  config.batch = 1;
  config.accumulation = 4;
  config.sequence = 4096;
  config.plugin_options["adamw"]["beta1"] = "0.8";
  return config;
}

std::vector<std::string> wrong_in(const Proof& proof) {
  std::vector<std::string> wrong;
  for (const Statement& s : proof.statements) wrong.insert(wrong.end(), s.wrong.begin(), s.wrong.end());
  return wrong;
}

void expect_holds(RunConfig config) {
  const std::string text = config.model + " " + text_of(config.strategies);
  const Proof proof = prove(plan_run(std::move(config), plugin_host()), {.full_size = false});
  EXPECT_TRUE(proof.holds()) << text;
  EXPECT_THAT(wrong_in(proof), IsEmpty()) << text;
  EXPECT_EQ(proof.statements.size(), 5u) << text;
}

TEST(Proof, HoldsForLayoutsOfLargeModels) {
  expect_holds(full_run("llama-3.1-70b", "tp-sp=8+zero3-offload", 16));
  expect_holds(full_run("qwen3-0.6b", "pipeline=4+zero2", 8));
  expect_holds(full_run("qwen2.5-0.5b", "tp-sp=2+cp=2+ddp", 8));
  expect_holds(full_run("mixtral-8x7b", "ep=4+zero2", 8));
  expect_holds(full_run("qwen3-30b-a3b", "ep=2+tp-sp=2+zero3-offload", 8));
}

TEST(Proof, HoldsForOptionsThatNameLayersAndSizes) {
  RunConfig config = full_run("qwen3-0.6b", "zero3-offload", 4);
  config.recompute = parse_recompute("full", "3-10");
  config.offload = parse_offload("14-20");
  config.plugin_options["zero3-offload"] = {{"reduce-bucket-size", "2e7"}, {"offload-optimizer.device", "cpu"}};
  expect_holds(config);
  config.freeze = parse_freeze("model.layers.1.*", "");
  config.recompute = {};
  config.offload = {};
  expect_holds(config);
}

TEST(SmallRun, KeepsWhatDecidesHowRanksShareTheWork) {
  RunConfig config = full_run("llama-3.1-70b", "tp-sp=4+pipeline=3+zero2", 24);
  config.accumulation = 20;
  config.plugin_options["zero2"] = {{"stage", "1"}, {"allgather-bucket-size", "2e8"}};
  config.plugin_options["tp-sp"] = {{"logits-bytes", "100Mi"}};
  const SmallRun small = small_run(plan_run(config, plugin_host()));
  const auto model = nlohmann::json::parse(small.plan.config().model);
  EXPECT_EQ(small.plan.layout().mesh, plan_run(config, plugin_host()).layout().mesh);
  EXPECT_EQ(model["num_hidden_layers"].get<int>() % 3, 80 % 3);
  EXPECT_EQ(model["num_key_value_heads"], 8);
  EXPECT_EQ(model["num_attention_heads"].get<int>() % 4, 0);
  EXPECT_EQ(model["vocab_size"].get<int>() % 4, 128256 % 4);
  EXPECT_EQ(small.plan.config().accumulation, 2 * 3 + 20 % 3);
  EXPECT_LT(model["hidden_size"], 64);
  EXPECT_THAT(small.notes, ::testing::UnorderedElementsAre(HasSubstr("--zero2.allgather-bucket-size 2e8 is "),
                                                           HasSubstr("--tp-sp.logits-bytes 100Mi is ")));
  EXPECT_EQ(small.plan.config().plugin_options.at("zero2").at("stage"), "1");
}

TEST(SmallRun, KeepsWindowsTiesFieldsAndDenseLayers) {
  RunConfig config = config_of({"qwen2.5-window"}, {"--ranks=2", "--synthetic.fields=loss_mask,document_start"});
  config.sequence = 64;
  const SmallRun small = small_run(plan_run(config, plugin_host()));
  const auto before = nlohmann::json::parse(plan_run(config, plugin_host()).parts().architecture->config_json()),
             model = nlohmann::json::parse(small.plan.config().model);
  EXPECT_EQ(model["tie_word_embeddings"], before["tie_word_embeddings"]);
  EXPECT_EQ(model["use_sliding_window"], true);
  EXPECT_LT(model["sliding_window"], small.plan.config().sequence);
  EXPECT_EQ(small.plan.parts().fields.size(), 2u);
}

/// Programs beside those of one rank with the same micro-batches.
struct Pair {
  std::unique_ptr<RankPrograms> programs, one;
  std::optional<FirstDifference> first() const { return first_difference(*programs, *one, 7); }
};
Pair pair_of(const ModelChoice& model, const Words& words) {
  Pair pair{compile(config_of(model, words), 256), nullptr};
  RunConfig one = alone(*pair.programs);
  one.accumulation = pair.programs->config.accumulation;
  pair.one = compile(std::move(one), 0);
  return pair;
}

TEST(FirstDifference, IsNoneInLayoutsThatAreRight) {
  const Words layouts[] = {{"--strategy=ddp", "--ranks=4", "--accumulation=2"},
                           {"--strategy=zero2", "--ranks=2", "--zero2.reduce-bucket-size=500"},
                           {"--strategy=zero3-offload", "--ranks=3", "--global-batch=12", "--recompute=full", "--precision=bf16"},
                           {"--strategy=tp-sp=2+zero2", "--ranks=4", "--precision=fp8"},
                           {"--strategy=pipeline=2", "--ranks=2", "--accumulation=4", "--pipeline.schedule=zero-bubble"},
                           {"--strategy=cp=2", "--ranks=2", "--cp.attention=ring"},
                           {"--strategy=cp=2", "--ranks=2", "--cp.attention=ulysses"}};
  for (const ModelChoice& model : {ModelChoice{"llama-untied"}, ModelChoice{"llama-tied"}}) {
    for (const Words& words : layouts) {
      const auto first = pair_of(model, words).first();
      EXPECT_FALSE(first) << interpreter::text_of(model, words) << "\n" << (first ? first->tensor + " " + std::to_string(first->found) + " " + std::to_string(first->expected) + "\n" + first->instruction : "");
    }
  }
  for (const Words& words : {Words{"--strategy=ep=2", "--ranks=2"}, Words{"--strategy=ep=2+ddp", "--ranks=4", "--ep.dispatch=all-to-all"}}) {
    const auto first = pair_of({"qwen3-moe"}, words).first();
    EXPECT_FALSE(first) << (first ? first->tensor + " " + std::to_string(first->found) + " " + std::to_string(first->expected) + "\n" + first->instruction : "");
  }
}

TEST(FirstDifference, NamesTheOpTheLayerAndTheRank) {
  const Pair pair = pair_of({"llama-untied"}, {"--strategy=tp-sp=2", "--ranks=2"});
  Program& wrong = pair.programs->steps[1].program;
  int norms = 0;
  for (Instruction& i : wrong.instructions) {
    if (i.op->name() == "rms_norm" && i.tag.layer == 1 && norms++ == 0) i.attributes.set("epsilon", 0.5);
  }
  ASSERT_GT(norms, 0);
  const auto first = pair.first();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->op, "rms_norm");
  EXPECT_EQ(first->layer, 1);
  EXPECT_EQ(first->rank, 1);
  EXPECT_THAT(first->inputs_from, Not(IsEmpty()));
}

// A gradient counts whichever optimizer gets it, one of a rule too.
TEST(Differences, NameAWrongGradientOfAnyOptimizer) {
  RunConfig config = config_of({"llama-untied"}, {"--strategy=ddp", "--ranks=2", "--accumulation=2"});
  config.optimizer.rules =
      parse_optimizer_rules("*.o_proj.*:optimizer=lion;*.down_proj.*:optimizer=sgd;*.q_proj.*:optimizer=muon");
  const auto programs = compile(config, 256), one = compile(alone(*programs), 0);
  const interpreter::Outcome expected = interpreter::run(*one, {});
  for (const Parameter& p : one->steps[0].program.parameters)
    EXPECT_TRUE(expected.values.contains(p.name + ".gradient")) << p.name;
  EXPECT_THAT(differences(interpreter::run(*programs, {}), expected), IsEmpty());

  const std::string lion = "model.layers.1.self_attn.o_proj.weight";
  EXPECT_EQ(test::overwrite_accumulated_gradient(*programs, lion), 2);
  std::vector<std::string> wrong;
  for (const Difference& d : differences(interpreter::run(*programs, {}), expected)) wrong.push_back(d.what);
  EXPECT_THAT(wrong, Contains(lion + ".gradient"));
}

TEST(FirstDifference, NamesThePassThatMadeTheInstruction) {
  const Pair pair = pair_of({"llama-untied"}, {"--strategy=ddp", "--ranks=2", "--accumulation=2"});
  for (interpreter::Planned& step : pair.programs->steps) {
    for (Instruction& i : step.program.instructions) {
      if (i.op->name() == "all_reduce" && i.inputs.size() > 1) i.op = &registry().get("release"), i.outputs.clear(), i.attributes = {};
    }
  }
  const auto first = pair.first();
  ASSERT_TRUE(first);
  EXPECT_NE(first->pass, "");
}

}  // namespace
}  // namespace consist::prove
