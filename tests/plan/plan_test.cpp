// Plans: the same configuration gives the same plan, ranks of a pipeline stand in it once each, a target changes what depends on
// it.
#include "core/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "core/program/printer.h"

namespace consist {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PluginHost& host() {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return host;
}

RunConfig tiny(const std::string& strategies, int ranks) {
  RunConfig config;
  config.model = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied";
  config.strategies = parse_strategies(strategies);
  config.ranks = ranks;
  config.batch = 2;
  config.accumulation = 4;
  config.sequence = 16;
  return config;
}

std::string refusal(const RunConfig& config) {
  try {
    plan_run(config, host());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Plan, TheSameConfigurationGivesTheSamePlan) {
  const Plan one = plan_run(tiny("zero2", 2), host()), two = plan_run(tiny("zero2", 2), host());
  EXPECT_EQ(to_text(one.step(0)), to_text(two.step(0)));
  EXPECT_EQ(one.config().to_json(), two.config().to_json());
  const auto ranks = one.ranks();
  ASSERT_EQ(ranks.size(), 1U) << "ranks that differ along the batch alone stand for each other";
  EXPECT_GT(ranks[0].summary.planned_bytes, 0);
  EXPECT_EQ(simulate(ranks).seconds, simulate(two.ranks()).seconds);
}

TEST(Plan, BesideStagesZeroReducesOncePerStepUnlessItsStageIsGiven) {
  RunConfig usual = tiny("pipeline=2+zero2", 4), one = usual, two = usual;
  one.plugin_options["zero2"]["stage"] = "1";
  two.plugin_options["zero2"]["stage"] = "2";
  const Plan plan = plan_run(usual, host()), of_one = plan_run(one, host()), of_two = plan_run(two, host());
  EXPECT_EQ(to_text(plan.step(0)), to_text(of_one.step(0)));
  EXPECT_NE(to_text(plan.step(0)), to_text(of_two.step(0)));
  EXPECT_THAT(plan.config().notes, Contains("--zero2.stage 1, its default beside stages of a pipeline (2 without)"));
  EXPECT_THAT(of_two.config().notes, ::testing::Not(Contains(HasSubstr("zero2.stage"))));
  RunConfig alone = tiny("zero2", 2);
  const Plan without_stages = plan_run(alone, host());
  alone.plugin_options["zero2"]["stage"] = "2";
  EXPECT_EQ(to_text(without_stages.step(0)), to_text(plan_run(alone, host()).step(0)));
}

TEST(Plan, EachStageOfAPipelineStandsInItOnce) {
  const Plan plan = plan_run(tiny("pipeline=2+ddp", 4), host());
  for (const int rank : {0, 1, 2, 3}) {
    std::vector<int> members;
    for (const PlannedRank& planned : plan.ranks(rank)) {
      members.push_back(planned.rank);
      EXPECT_EQ(planned.step->program().rank, planned.rank);
    }
    ASSERT_EQ(members.size(), 2U);
    EXPECT_THAT(members, Contains(rank));
  }
  EXPECT_GT(simulate(plan.ranks()).seconds, 0);
}

TEST(Plan, TheBatchIsSettledAndOptionsWithoutEffectAreNoted) {
  RunConfig config = tiny("ddp", 2);
  config.global_batch = 16;
  config.accumulation = 0;
  EXPECT_EQ(plan_run(config, host()).config().accumulation, 4);
  config = tiny("ddp", 1);
  config.plugin_options["ddp"]["bucket-size"] = "1M";
  EXPECT_THAT(plan_run(config, host()).config().notes, ElementsAre(HasSubstr("strategy ddp has one rank")));
  config = tiny("ddp", 2);
  config.global_batch = 3;
  EXPECT_THAT(refusal(config), HasSubstr("leaves a rest"));
  EXPECT_THAT(refusal(tiny("tp-sp=2", 3)), HasSubstr("multiply to 2"));
  config = tiny("ddp", 1);
  config.machine = "abacus";
  EXPECT_THAT(refusal(config), HasSubstr("--machine 'abacus'"));
}

TEST(Plan, TheEvaluationIsPlannedWhereItIsAskedFor) {
  RunConfig config = tiny("ddp", 1);
  EXPECT_FALSE(plan_run(config, host()).evaluation(0).has_value());
  config.evaluate_every = 1;
  EXPECT_TRUE(plan_run(config, host()).evaluation(0).has_value());
}

TEST(Plan, TheTargetsMachineIsThatOfItsPrograms) {
  RunConfig config = tiny("ddp", 2);
  config.machine = "l40s";
  const Plan by_option = plan_run(config, host());
  EXPECT_EQ(costs_of(by_option.step(0)).machine().name, "l40s");
  config.machine.clear();
  const Plan plan = plan_run(config, host(), {nullptr, std::make_shared<Machine>(*by_option.target().machine)});
  EXPECT_EQ(costs_of(plan.step(0)).machine().name, "l40s");
  const Plan other = plan.for_target({});
  EXPECT_EQ(other.target().machine->name, reference_machine()->name);
  EXPECT_EQ(costs_of(other.step(0)).machine().name, reference_machine()->name);
  EXPECT_EQ(costs_of(plan.step(0)).machine().name, "l40s") << "an alternative is another value";
}

TEST(Plan, WhatTheJobSettlesIsAnotherPlanOfTheSamePrograms) {
  RunConfig config = tiny("ddp", 2);
  config.steps = 100;
  const Plan plan = plan_run(config, host());
  const Plan settled = plan.with_choices(
      {.steps = 7, .options = {{{"cpu", {{"bf16", "native"}}}}}, .transport = "socket", .notes = {"one epoch"}});
  EXPECT_EQ(settled.config().steps, 7);
  EXPECT_EQ(settled.config().chosen_options.at("cpu").at("bf16"), "native");
  EXPECT_EQ(settled.config().chosen_transport, "socket");
  EXPECT_THAT(settled.config().notes, Contains("one epoch"));
  EXPECT_EQ(to_text(settled.step(1)), to_text(plan.step(1)));
  EXPECT_EQ(plan.config().steps, 100);
  EXPECT_TRUE(plan.config().chosen_options.empty());
  EXPECT_TRUE(plan.config().notes.empty());
  EXPECT_EQ(settled.with_choices({.notes = {"another"}}).config().steps, 7) << "what is not settled stays";
}

TEST(Plan, AShortenedStepLeavesTheBatchOfARankAlone) {
  const Plan plan = plan_run(tiny("ddp", 2), host());
  const Plan shortened = plan.with_micro_batches(1);
  EXPECT_LT(shortened.step(0).instructions.size(), plan.step(0).instructions.size());
  EXPECT_EQ(shortened.config().batch, plan.config().batch);
  EXPECT_EQ(plan.config().accumulation, 4);
}

TEST(Plan, PartsThatDoNotExistAreToldFromPartsThatDoNotGoTogether) {
  RunConfig config = tiny("tp-sp=2", 3);
  SelectedParts selected = select_parts(config, host());
  EXPECT_EQ(selected.parts.strategies.size(), 1U);
  EXPECT_THROW(Plan(std::move(selected), host()), UsageError);
  config.precision = "fp7";
  EXPECT_THROW(select_parts(config, host()), UsageError);
}

}  // namespace
}  // namespace consist
