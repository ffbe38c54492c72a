// Goodput beside a simulation of failures, and what predict says of it.
#include "launch/predict/goodput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/advise/planned.h"

namespace consist::launch {
namespace {

/// The share of time that trains, by failures drawn one by one.
double simulated(double seconds, double blocked, double failure_seconds, double restart_seconds, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> until_failure(1 / failure_seconds);
  constexpr int intervals = 200'000;
  double time = 0, next = until_failure(random);
  for (int done = 0; done < intervals;) {
    if (next > seconds + blocked) {
      time += seconds + blocked;
      next -= seconds + blocked;
      ++done;
      continue;
    }
    time += next;  // lost
    for (next = until_failure(random); next < restart_seconds; next = until_failure(random)) time += next;
    time += restart_seconds;
    next -= restart_seconds;
  }
  return intervals * seconds / time;
}

TEST(Goodput, IsThatOfSimulatedFailures) {
  struct Case {
    double seconds, blocked, failures, restart;
  };
  for (const Case& c : {Case{600, 30, 7200, 300}, Case{3600, 10, 3600, 600}, Case{60, 60, 1000, 0}, Case{100, 0, 500, 500}}) {
    EXPECT_NEAR(
        goodput_of(c.seconds, c.blocked, c.failures, c.restart) / simulated(c.seconds, c.blocked, c.failures, c.restart, 7), 1,
        0.02)
        << c.seconds << " " << c.failures;
  }
}

TEST(Goodput, NoOtherIntervalIsBetterThanTheBest) {
  for (const double failures : {1000.0, 1e5, 1e7}) {
    const CheckpointInterval best = best_interval(20, failures, 300, 0.5);
    for (const double factor : {0.5, 0.8, 1.25, 2.0})
      EXPECT_GE(best.goodput, goodput_of(factor * best.seconds, 20, failures, 300));
    EXPECT_NEAR(best.seconds / std::sqrt(2 * 20 * failures), 1, failures > 1e4 ? 0.05 : 0.3) << "Young's interval";
    EXPECT_NEAR(static_cast<double>(best.steps) * 0.5, best.seconds, 1e-9);
  }
}

TEST(Goodput, AStepIsTheShortestIntervalAndLeastIsKept) {
  EXPECT_EQ(best_interval(0, 1e6, 300, 10).steps, 1);
  EXPECT_GE(best_interval(0.1, 1e5, 300, 1, 120).seconds, 119.5);
}

}  // namespace
}  // namespace consist::launch
