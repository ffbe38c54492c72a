// --optimizer-rules: what is understood and refused, and the programs and
// descriptions that follow.
#include "core/config/optimizer_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "core/plan/plan.h"
#include "core/plugin/host.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(OptimizerRules, AreReadAndWrittenAgain) {
  EXPECT_TRUE(parse_optimizer_rules("").empty());
  const std::string text = "lm_head*,*norm*:lr-factor=0.1;*proj.weight:"
                           "optimizer=muon,weight-decay=0";
  const std::vector<OptimizerRule> rules = parse_optimizer_rules(text);
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_THAT(rules[0].patterns, ElementsAre("lm_head*", "*norm*"));
  EXPECT_EQ(rules[0].rate_factor, 0.1);
  EXPECT_FALSE(rules[0].weight_decay);
  EXPECT_EQ(rules[0].optimizer, "");
  EXPECT_EQ(rules[1].optimizer, "muon");
  EXPECT_EQ(rules[1].weight_decay, 0);
  EXPECT_EQ(text_of(rules), text);
  EXPECT_EQ(text_of(parse_optimizer_rules("a:lr-factor=1")), "a:lr-factor=1")
      << "a rule that changes nothing stays one";
}

TEST(OptimizerRules, WhatIsNoneIsRefused) {
  const auto refused = [](const char *text, const char *why) {
    EXPECT_THAT([&] { parse_optimizer_rules(text); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("--optimizer-rules"), HasSubstr(why))));
  };
  refused("lm_head*",
          "a rule is patterns of names, a colon, and what holds for them");
  refused(":lr-factor=1", "a rule is patterns");
  refused("a:lr-factor=1;", "a rule is patterns");
  refused("a,:lr-factor=1", "empty pattern");
  refused("a:lr-factor", "'lr-factor' has no value");
  refused("a:lr-factor=-1", "no number from 0");
  refused("a:weight-decay=x", "weight-decay is 'x'");
  refused("a:lr=0.1", "there is no 'lr', but lr-factor (of --learning-rate)");
}

class RulesOfAPlan : public ::testing::Test {
protected:
  Plan plan(const std::string &rules) {
    RunConfig config;
    config.model = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied";
    config.from_scratch = true;
    config.dataset = "synthetic";
    config.device = "cpu";
    config.sequence = 16;
    config.optimizer.rules = parse_optimizer_rules(rules);
    return plan_run(config, host_);
  }
  static const Parameter &parameter(const Program &program,
                                    const std::string &name) {
    return *std::find_if(program.parameters.begin(), program.parameters.end(),
                         [&](const Parameter &p) { return p.name == name; });
  }
  PluginHost host_{{CONSIST_BINARY_DIR "/lib/consist/plugins"}};
};

TEST_F(RulesOfAPlan, EachParameterHasTheStatesAndTheDecayOfItsRule) {
  const Program step =
      plan("*mlp*:optimizer=lion;*norm*,*down_proj*:weight-decay=0.5").step(0);
  EXPECT_EQ(parameter(step, "lm_head.weight").states.size(), 2u);
  ASSERT_EQ(
      parameter(step, "model.layers.0.mlp.down_proj.weight").states.size(), 1u)
      << "of two rules the first counts";
  EXPECT_EQ(
      parameter(step, "model.layers.0.mlp.down_proj.weight").states[0].name,
      "momentum");
  int lions = 0, decaying_norms = 0;
  for (const Instruction &i : step.instructions) {
    if (i.op->name() == "lion")
      ++lions;
    if (i.op->name() == "lion")
      EXPECT_EQ(i.attributes.real("weight_decay"), 0.1);
    if (i.op->name() == "adamw" && i.attributes.real("weight_decay") == 0.5)
      ++decaying_norms;
    if (i.op->name() == "adamw")
      EXPECT_NE(i.attributes.real("weight_decay"), 0)
          << "norms are exempt no more";
  }
  EXPECT_EQ(lions, 2) << "one of each layer";
  EXPECT_EQ(decaying_norms, 3) << "of the layers, and the last norm";
  EXPECT_NE(step.find("optimizer_scalars.1"), no_tensor);
  EXPECT_EQ(plan("").step(0).find("optimizer_scalars.1"), no_tensor);
}

TEST_F(RulesOfAPlan, SayWhatTheyAre) {
  const Plan planned =
      plan("*mlp*:optimizer=lion,lr-factor=0.25;lm_head*:weight-decay=0");
  EXPECT_THAT(
      planned.parts().optimizers(planned.config()).describe(),
      AllOf(
          HasSubstr("AdamW"),
          HasSubstr(
              "; '*mlp*': Lion, betas 0.9 and 0.99, 0.25 of the learning rate"),
          HasSubstr("; 'lm_head*': weight decay 0")));
}

TEST_F(RulesOfAPlan, PatternsAndOptimizersThatAreNotThereAreRefused) {
  EXPECT_THAT(
      [&] { plan("lm_haed*:lr-factor=2"); },
      ThrowsMessage<UsageError>(
          AllOf(HasSubstr("--optimizer-rules 'lm_haed*' matches no parameter"),
                HasSubstr("lm_head"))));
  EXPECT_THAT([&] { plan("lm_head*:optimizer=mouon"); },
              ThrowsMessage<UsageError>(HasSubstr("mouon")));
}

} // namespace
} // namespace consist
