// The bound of a run: what a busy machine measures is no bound, and is said to be none.
#include "core/record/bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace consist {
namespace {

using ::testing::HasSubstr;

Bound judged(std::vector<double> rates) {
  return bound_from_rates(rates);
}

TEST(Bound, IsWhatMostLooksAgreeOn) {
  const Bound bound = judged({97e9, 100e9, 99e9, 60e9, 98e9});
  EXPECT_EQ(bound.flops, 99e9);
  EXPECT_EQ(bound.problem, "");
}

TEST(Bound, ThereIsNoneIfTheLooksDisagree) {
  const Bound bound = judged({100e9, 30e9, 70e9, 55e9, 99e9});
  EXPECT_EQ(bound.flops, 0);
  EXPECT_THAT(bound.problem, HasSubstr("30.0 GFLOP/s to 100 GFLOP/s in 5 looks"));
  EXPECT_EQ(judged({100e9, 50e9}).flops, 0);
  EXPECT_EQ(judged({}).flops, 0);
}

TEST(Bound, ThereIsNoneIfThreadsWaitedForAProcessor) {
  double waited = 0;
  const auto look = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    waited += 0.001;
    return 1e9;
  };
  const Bound bound = measure_bound(look, [&] { return waited; });
  EXPECT_EQ(bound.flops, 0);
  EXPECT_THAT(bound.problem, HasSubstr("waited"));
  EXPECT_EQ(measure_bound(look, [] { return -1.0; }).flops, 1e9) << "where waits are not known, the looks decide";
}

TEST(Bound, ThatTheStepsHavePassedIsNone) {
  EXPECT_EQ(checked_bound({100e9, ""}, 99e9).flops, 100e9);
  const Bound passed = checked_bound({100e9, ""}, 101e9);
  EXPECT_EQ(passed.flops, 0);
  EXPECT_THAT(passed.problem, HasSubstr("the product alone at 100 GFLOP/s"));
}

TEST(Bound, ARunOfLittleWorkHasNone) {
  EXPECT_EQ(too_short_for_bound(2e10), "");
  EXPECT_EQ(too_short_for_bound(1.5e9), "the run is too short for one: 1.50 GFLOP a rank, less than 20.0 GFLOP");
}

TEST(Bound, WaitsOfThisProcessAreCounted) {
  const double before = seconds_waited_for_processor();
  if (before < 0) GTEST_SKIP() << "this kernel does not count waits";
  EXPECT_GE(seconds_waited_for_processor(), 0.0);
}

}  // namespace
}  // namespace consist
