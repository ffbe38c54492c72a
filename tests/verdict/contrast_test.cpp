// Intervals of contrasts: arithmetic by hand, and how often they err where the truth is known.
#include "launch/verdict/contrast.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/verdict/series.h"

namespace consist::launch {
namespace {

using test::made_sides;
using test::MadeSides;
using test::Noise;

constexpr int draws = 2000;
constexpr double most_false = 0.05 + 2 * 0.0049;  ///< twice the standard error of a rate of 5% in so many draws

/// Share of draws whose interval leaves the true ratio out.
double misses(int runs, double truth, const Noise& noise, bool turns, double run_spread, Method expected) {
  std::mt19937_64 random(20261126);
  int missed = 0;
  for (int i = 0; i < draws; ++i) {
    const MadeSides sides = made_sides(random, runs, truth, noise, turns);
    const Contrast contrast = contrast_of_runs(sides.a, sides.b, {.level = 0.95, .run_spread = run_spread});
    EXPECT_EQ(contrast.method, expected) << contrast.problem;
    missed += contrast.low > truth || contrast.high < truth;
  }
  return static_cast<double>(missed) / draws;
}

TEST(ContrastOfRuns, OfThreeRunsASideLeavesTheTruthOutInOneOfTwenty) {
  EXPECT_LE(misses(3, 1.0, Noise{}, false, 0.01, Method::welch_runs), most_false);
  EXPECT_LE(misses(3, 1.1, Noise{.run = 0.1, .steps = 15}, false, 0.01, Method::welch_runs), most_false);
  EXPECT_GT(misses(3, 1.0, Noise{}, false, 0.01, Method::welch_runs), 0.01) << "an interval that is never wrong says nothing";
}

TEST(ContrastOfRuns, OfTwoRunsASideTakesOneScatterForBoth) {
  const double missed = misses(2, 0.97, Noise{}, false, 0.01, Method::pooled_runs);
  EXPECT_LE(missed, most_false);
  EXPECT_GT(missed, 0.01);
}

TEST(ContrastOfRuns, OfSingleRunsTakesTheSpreadThatIsAssumed) {
  const double missed = misses(1, 1.0, Noise{.run = 0.03}, false, 0.03, Method::batch_means);
  EXPECT_LE(missed, most_false);
  EXPECT_GT(missed, 0.01);
  EXPECT_GT(misses(1, 1.0, Noise{.run = 0.03}, false, 0.0001, Method::batch_means), 0.2)
      << "steps alone do not know how far runs differ";
}

TEST(ContrastOfRuns, OfSingleRunsBatchesKnowThatStepsDependOnOneAnother) {
  const double missed = misses(1, 1.0, Noise{.run = 0, .correlation = 0.7, .steps = 400}, false, 0, Method::batch_means);
  EXPECT_LE(missed, 0.08) << "batches of twenty steps still depend on one another a little";
}

TEST(ContrastOfRuns, OfRunsByTurnsTakesTheDriftOutOfPairs) {
  const Noise drifting{.run = 0.01, .drift = 0.3};
  EXPECT_LE(misses(6, 1.0, drifting, true, 0.01, Method::paired_runs), most_false);
  EXPECT_GT(misses(6, 1.0, drifting, false, 0.01, Method::welch_runs), 0.9)
      << "A first, then B: the drift counts as a difference";
  std::mt19937_64 random(1);
  const MadeSides sides = made_sides(random, 6, 1.05, drifting, true);
  const Contrast pairs = contrast_of_runs(sides.a, sides.b, {});
  EXPECT_GT(pairs.low, 1.0);
  EXPECT_LT(pairs.high, 1.1);
}

/// Share of pairs that are decided within six looks, and of those that are decided wrongly.
std::pair<double, double> looked(double truth, const std::function<double(int)>& level) {
  std::mt19937_64 random(7);
  constexpr int most_runs = 12;
  int decided = 0, wrong = 0;
  for (int i = 0; i < draws; ++i) {
    const MadeSides all = made_sides(random, most_runs, truth, Noise{.steps = 12}, true);
    for (int look = 1; look <= most_runs - 2; ++look) {
      const auto runs = static_cast<std::size_t>(look) + 2;
      const Contrast contrast =
          contrast_of_runs(std::span(all.a).first(runs), std::span(all.b).first(runs), {.level = level(look)});
      if (contrast.low <= 1 && contrast.high >= 1) continue;
      ++decided;
      wrong += truth == 1 || (truth > 1) == (contrast.high < 1);
      break;
    }
  }
  return {static_cast<double>(decided) / draws, static_cast<double>(wrong) / draws};
}

TEST(ContrastOfRuns, LooksAgainAndAgainWithoutErringMoreOften) {
  EXPECT_LE(looked(1.0, [](int look) { return level_at_look(0.95, look); }).second, 0.05);
  EXPECT_GT(looked(1.0, [](int) { return 0.95; }).second, 0.1) << "what looking again and again at one level costs";
  const auto [decided, wrong] = looked(1.1, [](int look) { return level_at_look(0.95, look); });
  EXPECT_GT(decided, 0.9);
  EXPECT_EQ(wrong, 0);
}

TEST(ContrastOfRuns, IsWelchsIntervalByHand) {
  const std::vector<MeasuredRun> a{{.value = 100}, {.value = 102}, {.value = 98}},
      b{{.value = 110}, {.value = 109}, {.value = 111}};
  const Contrast contrast = contrast_of_runs(a, b, {});
  // 2.7924 degrees of freedom, of which the 97.5% quantile of t is 3.32055 (its density integrated by Simpson's rule).
  EXPECT_EQ(contrast.method, Method::welch_runs);
  EXPECT_NEAR(contrast.ratio, 1.1001164, 1e-6);
  EXPECT_NEAR(contrast.low, 1.0547387, 1e-6);
  EXPECT_NEAR(contrast.high, 1.1474464, 1e-6);
}

TEST(ContrastOfRuns, SaysWhyShortRunsHaveNoInterval) {
  const std::vector<MeasuredRun> a{{.value = 1, .steps = {1, 1, 1}}}, b{{.value = 2, .steps = {1, 1, 1}}};
  const Contrast contrast = contrast_of_runs(a, b, {});
  EXPECT_FALSE(contrast.known());
  EXPECT_EQ(contrast.ratio, 2);
  EXPECT_EQ(contrast.problem.find("a run has fewer than 10 steps behind its warm-up"), 0U) << contrast.problem;
}

TEST(ByTurns, NeedsOneOfEachSideInEachPairOfStarts) {
  const auto runs = [](std::vector<double> starts) {
    std::vector<MeasuredRun> made;
    for (const double began : starts) made.push_back({.value = 1, .began = began});
    return made;
  };
  EXPECT_TRUE(by_turns(runs({1, 3, 5}), runs({2, 4, 6})));
  EXPECT_TRUE(by_turns(runs({1, 4, 5}), runs({2, 3, 6}))) << "every other round backwards";
  EXPECT_FALSE(by_turns(runs({1, 2, 3}), runs({4, 5, 6})));
  EXPECT_FALSE(by_turns(runs({1, 3}), runs({2, 4, 6})));
  EXPECT_FALSE(by_turns(runs({1, std::nan("")}), runs({2, 4})));
}

TEST(ContrastOfPlans, IsExactOrTheRange) {
  const std::vector<MeasuredRun> same{{.value = 100}, {.value = 100}}, other{{.value = 110}, {.value = 121}};
  EXPECT_EQ(contrast_of_plans(same, same).method, Method::exact);
  EXPECT_EQ(contrast_of_plans(same, same).low, 1);
  const Contrast range = contrast_of_plans(same, other);
  EXPECT_EQ(range.method, Method::range);
  EXPECT_NEAR(range.low, 1.10, 1e-12);
  EXPECT_NEAR(range.high, 1.21, 1e-12);
}

TEST(ContrastOfSteps, TakesWhatBothSidesShareOutOfIt) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> a, b;
  for (int i = 0; i < 100; ++i) {
    const double data = 3 + 0.3 * normal(random);  // hard and easy batches, which both sides read
    a.push_back(data);
    b.push_back(1.002 * data * std::exp(0.0005 * normal(random)));
  }
  const Contrast contrast = contrast_of_steps(a, b, {});
  EXPECT_EQ(contrast.method, Method::paired_steps);
  EXPECT_GT(contrast.low, 1.001);
  EXPECT_LT(contrast.high, 1.003);
  EXPECT_EQ(contrast_of_steps(a, a, {}).method, Method::exact);
  EXPECT_FALSE(contrast_of_steps(std::span(a).first(9), std::span(b).first(9), {}).known());
}

TEST(LevelAtLook, SharesTheErrorAmongAllLooks) {
  double error = 0;
  for (int look = 1; look < 100'000; ++look) error += 1 - level_at_look(0.95, look);
  EXPECT_LE(error, 0.05);
  EXPECT_GT(error, 0.0499);
}

}  // namespace
}  // namespace consist::launch
