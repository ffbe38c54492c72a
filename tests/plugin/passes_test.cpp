// Passes and ops of plugins: at the command line, as `consist explain` shows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/child_process.h"

namespace consist {
namespace {

using test::ChildResult;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

ChildResult explain(std::vector<std::string> options, const std::string& ranks = "2") {
  options.insert(options.begin(),
                 {CONSIST_BINARY_DIR "/bin/consist", "explain", "--plugin", TEST_PLUGINS "/passes", "--plugin",
                  TEST_PLUGINS "/own_op", "--sequence", "8", "--batch", "2", "--ranks", ranks, "--precision", "fp32"});
  return test::run_child(options);
}

ChildResult explain_passes(std::vector<std::string> options, const std::string& ranks = "2") {
  options.insert(options.end(), {"--model", "llama-tiny", "--strategy", "passes"});
  return explain(options, ranks);
}

TEST(PluginPasses, RunAtTheirPointsInOrder) {
  const ChildResult result = explain_passes({"--print-after", "list"});
  ASSERT_EQ(result.status, 0) << result.output;
  std::string known;
  for (const char* pass : {"build",
                           "passes.partition",
                           "propagate_shardings",
                           "rewrite",
                           "passes.forward",
                           "differentiate",
                           "recompute",
                           "passes.divide",
                           "gather_quantized",
                           "passes.micro_batch",
                           "unroll_micro_batches",
                           "hoist_step_invariants",
                           "passes.before_schedule",
                           "passes.schedule",
                           "passes.after_schedule",
                           "passes.copy_loss",
                           "hoist_step_invariants",
                           "fuse_amax",
                           "record_amaxes",
                           "update",
                           "passes.finish",
                           "passes.finished"}) {
    const std::size_t at = result.output.find(std::string("\n") + pass + "\n", known.size() < 2 ? 0 : known.size() - 2);
    if (std::string(pass) != "build") {
      ASSERT_NE(at, std::string::npos) << pass << " is not behind " << known << "\nin\n" << result.output;
      known = result.output.substr(0, at + 1 + std::string(pass).size() + 1);
    }
  }
}

TEST(PluginPasses, ChangeTheProgramUnderTheirName) {
  EXPECT_THAT(explain_passes({}).output, ContainsRegex("loss.copy.* by passes.copy_loss"));
  const ChildResult before = explain_passes({"--print-after", "passes.after_schedule"});
  EXPECT_THAT(before.output,
              AllOf(HasSubstr("After passes.after_schedule:"), Not(HasSubstr("copy_loss")), Not(HasSubstr("adamw"))));
  EXPECT_THAT(explain_passes({"--print-after", "passes.copy_loss"}).output, HasSubstr("by passes.copy_loss"));
}

TEST(PluginPasses, WhatLeavesAnIllegalProgramIsNamed) {
  for (const char* point : {"forward", "micro_batch", "before_schedule", "after_schedule", "finished"}) {
    const std::string pass = std::string("passes.") + point;
    const ChildResult result = explain_passes({"--passes.breaks", pass});
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.output,
                HasSubstr("pass '" + pass + "' of strategy 'passes' left an illegal program: instruction 0: it has no op"));
  }
}

TEST(PluginPasses, OfAStrategyOnOneRankAreLeftOutByName) {
  const ChildResult one = explain_passes({}, "1");
  EXPECT_EQ(one.status, 0);
  EXPECT_THAT(one.output, AllOf(HasSubstr("strategy passes has one rank and is not called"), Not(HasSubstr("passes.copy_loss"))));
  const ChildResult ddp = explain({"--model", "llama-tiny", "--strategy", "ddp"}, "1");
  EXPECT_THAT(ddp.output, Not(HasSubstr("has one rank")));
}

TEST(PluginPasses, AreTimed) {
  const ChildResult result = explain_passes({"--pass-times"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output,
              AllOf(ContainsRegex("passes.copy_loss +[0-9.]+ +[0-9.]+ +[0-9]+\n"),
                    ContainsRegex("passes.finished +[0-9.]+ +unchanged +[0-9]+\n"), ContainsRegex("\nall +[0-9.]+ ")));
}

TEST(PluginPasses, AMisspeltNameIsAnsweredWithThePasses) {
  const ChildResult result = explain_passes({"--print-after", "copy_loss"});
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("has no pass of that name"), HasSubstr("passes.copy_loss")));
}

// tp-sp has never heard of squared_relu: that it may be split by channels is a trait.
TEST(PluginOps, ATraitIsAllThatTensorParallelismAsksOf) {
  const ChildResult result = explain({"--model", "own-op-tiny", "--strategy", "tp-sp=2"});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(ContainsRegex("up.weight[^\n]*tensor:S0"), ContainsRegex("down.weight[^\n]*tensor:S1"),
                                   ContainsRegex(" = squared_relu[^\n]* activation [^\n]*tensor:S2")));
}

}  // namespace
}  // namespace consist
