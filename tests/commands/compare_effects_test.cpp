// What each choice of a comparison is worth: geometric means over the rows that differ in it alone.
#include "launch/compare_effects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"

namespace consist::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

CompareOutcome finished(double speed, double spread = 0, double memory = 1e9) {
  return {.status = "finished",
          .tokens_per_second = speed,
          .low = speed - spread,
          .high = speed + spread,
          .measured_bytes = memory,
          .bytes_sent_per_step = 1e6};
}

/// Rows of model m: a1 b1, a1 b2, a2 b1, a2 b2.
std::vector<CompareRow> rows() {
  std::vector<CompareRow> all = expand_rows({"--model", "m", "--precision", "fp32,bf16", "--batch=1,4"});
  EXPECT_EQ(all.size(), 4u);
  return all;
}

TEST(CompareEffects, AreRatiosOfRowsThatDifferInOneChoice) {
  const std::string text = effects_text(rows(), {finished(100), finished(200), finished(400, 0, 2e9), finished(800, 0, 2e9)});
  EXPECT_THAT(text, HasSubstr("precision bf16 over fp32: 4.00x the speed, memory 2.00x; 2 pairs"));
  EXPECT_THAT(text, HasSubstr("batch 4 over 1: 2.00x the speed; 2 pairs"));
  EXPECT_THAT(text, HasSubstr("Fastest of m: precision bf16, batch 4, 8.00 times the slowest.\n"));
}

TEST(CompareEffects, RowsThatDidNotFinishHaveNoPart) {
  const std::string text = effects_text(rows(), {finished(100), {.status = "refused"}, finished(400), finished(800)});
  EXPECT_THAT(text, HasSubstr("precision bf16 over fp32: 4.00x the speed; 1 pair\n"));
  EXPECT_THAT(text, HasSubstr("batch 4 over 1: 2.00x the speed; 1 pair\n"));
  EXPECT_EQ(effects_text(rows(), {{.status = "refused"}, {.status = "failed"}, {.status = "pending"}, finished(1)}), "");
}

TEST(CompareEffects, WhatTheSpreadHidesIsNotCalledFaster) {
  const std::string text = effects_text(rows(), {finished(100), finished(102, 3), finished(400), finished(404, 5)});
  EXPECT_THAT(text, HasSubstr("batch 4 over 1: 1.01x the speed (within the spread)"));
  EXPECT_THAT(text, HasSubstr("Its spread reaches these, too:\n  precision bf16, batch 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("  precision fp32, batch 4\n")));
}

TEST(CompareEffects, AdviceOfARunStandsUnderItsName) {
  std::vector<CompareOutcome> outcomes(4, CompareOutcome{.status = "refused"});
  outcomes[0] = finished(100);
  outcomes[0].advice = {"fp32 is slow here"};
  EXPECT_THAT(effects_text(rows(), outcomes), HasSubstr("own choices:\n  m_fp32_batch1: fp32 is slow here\n"));
}

TEST(CompareRows, KeysOfADeepspeedFileAreSwept) {
  const std::vector<CompareRow> all = expand_rows({"--model=m", "--deepspeed-set", "zero_optimization.sub_group_size=1e8,1e9",
                                                   "--deepspeed-set=optimizer.params.betas=[0.9,0.95]", "--checkpoint", "c"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].label, "m_sub_group_size1e9");
  const std::vector<std::string> arguments{"--model",         "m",
                                           "--deepspeed-set", "zero_optimization.sub_group_size=1e9",
                                           "--deepspeed-set", "optimizer.params.betas=[0.9,0.95]",
                                           "--checkpoint",    "c/m_sub_group_size1e9"};
  EXPECT_EQ(all[1].arguments, arguments);
  EXPECT_THROW(expand_rows({"--model=m", "--deepspeed-set=a.b=1,,2"}), UsageError);
}

TEST(CompareRows, EachHasItsOwnPlaceForFiles) {
  const std::vector<CompareRow> all = expand_rows({"--model=m", "--batch=1,2", "--export=e", "--trace", "t/step.json"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[1].arguments, testing::IsSupersetOf({"--export=e/m_batch2", "t/step-m_batch2.json"}));
}

TEST(CompareRows, OptionsOfAPartAreTakenOut) {
  CompareRow row{{}, {"--model", "m", "--efa.provider", "tcp", "--efa.flag", "--efa.x=1", "--ranks", "2"}, "m"};
  remove_options_of("efa", row);
  EXPECT_EQ(row.arguments, (std::vector<std::string>{"--model", "m", "--ranks", "2"}));
}

}  // namespace
}  // namespace consist::launch
