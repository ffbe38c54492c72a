// Effect of each choice of a comparison: geometric means over the rows that differ in it alone, with intervals over repeats.
#include "launch/compare/effects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "consist/error.h"
#include "launch/compare/winner.h"
#include "tests/commands/compare/compare_outcomes.h"

namespace consist::launch {
namespace {

using test::disturbed;
using test::finished;
using test::not_finished;
using test::rows_of;
using ::testing::HasSubstr;
using ::testing::Not;

/// Rows of model m: a1 b1, a1 b2, a2 b1, a2 b2.
std::vector<CompareRow> rows() {
  std::vector<CompareRow> all = rows_of({"--model", "m", "--precision", "fp32,bf16", "--batch=1,4"});
  EXPECT_EQ(all.size(), 4u);
  return all;
}

/// Three repeats that differ by one percent.
std::vector<double> about(double rate) {
  return {0.99 * rate, rate, 1.01 * rate};
}

TEST(CompareEffects, AreRatiosOfRowsThatDifferInOneChoice) {
  const std::string text = effects_text(
      rows(), {finished(0, about(100)), finished(1, about(200)), finished(2, about(400), 2e9), finished(3, about(800), 2e9)});
  EXPECT_THAT(text, HasSubstr("precision bf16 over fp32: 4.00x the speed (3.90 to 4.10), memory 2.00x; 2 pairs, 4.00x to 4.00x"));
  EXPECT_THAT(text, HasSubstr("batch 4 over 1: 2.00x the speed (1.95 to 2.05); 2 pairs"));
  EXPECT_THAT(text, HasSubstr("Fastest of m: precision bf16, batch 4, 8.00 times the slowest.\n"));
}

TEST(CompareEffects, SayTheirPairsRangeAndInterval) {
  const std::string text = effects_text(rows(), {finished(0, {100, 110, 90}), finished(1, {340, 300, 380}),
                                                 finished(2, {200, 200, 200}), finished(3, {110, 90, 120})});
  EXPECT_THAT(text, HasSubstr("0.79x the speed (0.61 to 1.03); 2 pairs, 0.31x to 2.01x; cannot be told from 1x here"));
}

TEST(CompareEffects, RowsThatDidNotFinishHaveNoPart) {
  const std::string text = effects_text(
      rows(), {finished(0, about(100)), not_finished(1, "refused"), finished(2, about(400)), finished(3, about(800))});
  EXPECT_THAT(text, HasSubstr("precision bf16 over fp32: 4.00x the speed (3.86 to 4.14); 1 pair\n"));
  EXPECT_EQ(effects_text(rows(), {not_finished(0, "refused"), not_finished(1, "failed"), not_finished(2, "pending"),
                                  finished(3, about(1))}),
            "");
}

TEST(CompareWinner, IsNamedOnlyWhereIntervalsPart) {
  const std::vector<CompareOutcome> close{finished(0, about(100)), finished(1, about(101)), finished(2, about(400)),
                                          finished(3, about(404))};
  EXPECT_FALSE(winner_of(rows(), close, "m"));
  const std::string text = effects_text(rows(), close);
  EXPECT_THAT(text, HasSubstr("these cannot be told apart here (their 95% intervals meet"));
  EXPECT_THAT(text, HasSubstr("\n  precision bf16, batch 4: 404 tokens/s\n  precision bf16, batch 1: 400 tokens/s\n"));
  EXPECT_THAT(text, Not(HasSubstr("  precision fp32, batch 4: ")));
  const std::vector<CompareOutcome> parted{finished(0, about(100)), finished(1, about(101)), finished(2, about(400)),
                                           finished(3, about(440))};
  EXPECT_EQ(winner_of(rows(), parted, "m"), 3u);
}

TEST(CompareWinner, OfRowsThatWereMeasuredOnceIsNone) {
  const std::vector<CompareOutcome> once{finished(0, {100}), finished(1, {200}), finished(2, {400}), finished(3, {800})};
  EXPECT_FALSE(winner_of(rows(), once, "m"));
  EXPECT_THAT(effects_text(rows(), once), HasSubstr("measured once"));
}

TEST(CompareWinner, OtherWorkOnTheMachineLeavesNone) {
  const std::vector<CompareOutcome> busy{finished(0, about(100)), finished(1, about(200)), finished(2, about(400)),
                                         disturbed(finished(3, about(800)), 3)};
  EXPECT_FALSE(winner_of(rows(), busy, "m"));
  const std::string text = effects_text(rows(), busy);
  EXPECT_THAT(text, HasSubstr("these cannot be told apart here (other processes took 48% of the processors' time)"));
  EXPECT_THAT(text, HasSubstr("2 pairs, 2.00x to 2.00x; the speed means nothing here: other processes took 48%"));
  std::vector<CompareOutcome> leaders = busy;
  leaders[3] = finished(3, about(800));
  leaders[0] = disturbed(leaders[0], 2);
  EXPECT_FALSE(winner_of(rows(), leaders, "m")) << "a row that was slowed down by other work may be the fastest";
}

TEST(CompareWinner, ARepeatThatWasDisturbedDoesNotCount) {
  CompareOutcome outcome = disturbed(finished(3, {500, 800, 808}), 1);
  EXPECT_EQ(outcome.disturbance, "");
  EXPECT_EQ(outcome.speed.count, 2);
  EXPECT_EQ(quiet_runs(outcome), 2);
  EXPECT_NEAR(outcome.speed.mean, 804, 1);
}

TEST(CompareEffects, RowsOfDifferentRepeatsHaveAnIntervalToo) {
  CompareOutcome late = finished(3, about(800));
  for (RunOutcome& run : late.runs) run.repeat += 3;
  CompareOutcome other = finished(2, about(400));
  const std::string text = effects_text(rows(), {not_finished(0, "failed"), not_finished(1, "failed"), other, late});
  EXPECT_THAT(text, HasSubstr("batch 4 over 1: 2.00x the speed (1.93 to 2.07); 1 pair\n"));
}

TEST(CompareEffects, TheSameProgramIsNoPair) {
  std::vector<CompareOutcome> all{finished(0, about(100)), finished(1, about(200)), finished(2, about(400)),
                                  finished(3, about(800))};
  all[2] = all[0];  // as if precision changed nothing with batch 1
  const std::string text = effects_text(rows(), all);
  EXPECT_THAT(text, HasSubstr("precision bf16 over fp32: 4.00x the speed (3.86 to 4.14); 1 pair\n"));
}

TEST(CompareEffects, AdviceOfARunStandsUnderItsName) {
  std::vector<CompareOutcome> outcomes;
  for (std::size_t i = 0; i < 4; ++i) outcomes.push_back(not_finished(i, "refused"));
  outcomes[0] = finished(0, about(100));
  outcomes[0].runs[0].advice = {"fp32 is slow here"};
  EXPECT_THAT(effects_text(rows(), outcomes), HasSubstr("own choices:\n  m_fp32_batch1: fp32 is slow here\n"));
}

TEST(CompareStatistics, IntervalsAreStudentsOverLogarithms) {
  const std::vector<double> rates{90, 100, 110};
  const Interval interval = interval_of(rates);
  // By hand: mean of logarithms 4.60181, their deviation 0.10035, t of 2 degrees 4.303: 0.2493 to each side.
  EXPECT_NEAR(interval.mean, 99.67, 0.01);
  EXPECT_NEAR(interval.low, 77.68, 0.02);
  EXPECT_NEAR(interval.high, 127.9, 0.05);
  EXPECT_EQ(spread_text(interval), "±28%");
  EXPECT_FALSE(interval_of(std::vector<double>{5}).known());
  EXPECT_EQ(spread_text(interval_of(std::vector<double>{5})), "-");
  EXPECT_NEAR(student_t(4), 2.776, 1e-3);
  EXPECT_NEAR(student_t(60), 2.000, 0.003);
}

TEST(CompareStatistics, ScatterIsEstimatedFromAllSamplesThatScatterAlike) {
  const std::vector<std::vector<double>> samples{{99, 100, 101}, {198, 200, 202}, {396, 400, 404}, {495, 500, 505}};
  const std::vector<Interval> pooled = pooled_intervals(samples);
  // By hand: each deviates by 1%, t of 8 degrees is 2.306 where one sample has 4.303.
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_NEAR(pooled[i].high / pooled[i].mean, std::exp(2.306 * 0.01 / std::sqrt(3.0)), 1e-5);
    EXPECT_DOUBLE_EQ(pooled[i].mean, interval_of(samples[i]).mean);
  }
}

TEST(CompareStatistics, ASampleThatScattersMoreKeepsItsOwnInterval) {
  const std::vector<std::vector<double>> samples{{99, 100, 101}, {198, 200, 202}, {396, 400, 404}, {400, 500, 600}};
  const std::vector<Interval> pooled = pooled_intervals(samples);
  const Interval alone = interval_of(samples[3]);
  EXPECT_DOUBLE_EQ(pooled[3].low, alone.low);
  EXPECT_DOUBLE_EQ(pooled[3].high, alone.high);
  EXPECT_NEAR(pooled[0].high / pooled[0].mean, std::exp(2.447 * 0.01 / std::sqrt(3.0)), 1e-5) << "6 degrees: the three others";
}

TEST(CompareStatistics, ASingleNumberHasNoIntervalAmongOthersEither) {
  const std::vector<std::vector<double>> samples{{100}, {198, 202}, {}};
  const std::vector<Interval> pooled = pooled_intervals(samples);
  EXPECT_FALSE(pooled[0].known());
  EXPECT_DOUBLE_EQ(pooled[0].mean, 100);
  EXPECT_TRUE(pooled[1].known());
  EXPECT_EQ(pooled[2].count, 0);
}

TEST(CompareStatistics, APooledIntervalHoldsTheMeanAsOftenAsItSays) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 0.03);
  int missed = 0;
  constexpr int trials = 4000, rows_of_each = 4;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<std::vector<double>> samples(rows_of_each);
    for (auto& sample : samples) {
      for (int repeat = 0; repeat < 3; ++repeat) sample.push_back(1000 * std::exp(noise(random)));
    }
    for (const Interval& interval : pooled_intervals(samples)) missed += interval.low > 1000 || interval.high < 1000;
  }
  const double share = static_cast<double>(missed) / (trials * rows_of_each);
  EXPECT_GT(share, 0.03);
  EXPECT_LT(share, 0.065) << "leaving out a sample that stands out by chance costs little";
}

TEST(CompareWinner, RowsThatScatterAlikeAreToldApartByThreeRepeats) {
  std::vector<CompareOutcome> outcomes{finished(0, about(100)), finished(1, about(200)), finished(2, about(400)),
                                       finished(3, about(416))};
  EXPECT_FALSE(winner_of(rows(), outcomes, "m"));
  settle(outcomes);
  EXPECT_EQ(winner_of(rows(), outcomes, "m"), 3u);
}

TEST(CompareWinner, MoreRepeatsAreMadeWhereTheyAreLikelyToDecide) {
  std::vector<CompareOutcome> outcomes{finished(0, about(100)), finished(1, about(398)), finished(2, about(400)),
                                       finished(3, about(409))};
  settle(outcomes);
  EXPECT_FALSE(winner_of(rows(), outcomes, "m"));
  EXPECT_THAT(contested_rows(rows(), outcomes), ::testing::UnorderedElementsAre(2u, 3u));
  outcomes[3] = finished(3, about(401));
  settle(outcomes);
  EXPECT_THAT(contested_rows(rows(), outcomes), ::testing::IsEmpty()) << "twice as many would not tell 400 from 401";
  outcomes[3] = disturbed(finished(3, about(409)), 3);
  settle(outcomes);
  EXPECT_THAT(contested_rows(rows(), outcomes), ::testing::IsEmpty()) << "other work is the reason, not the number of repeats";
}

}  // namespace
}  // namespace consist::launch
