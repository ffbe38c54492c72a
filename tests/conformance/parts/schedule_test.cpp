// Every schedule gives rates that are legal at every step of any run, the same each time and from any thread.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "consist/error.h"
#include "tests/conformance/parts/parts.h"

namespace consist {
namespace {

using testing::Candidate;
using testing::host;

class ScheduleConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  static std::shared_ptr<Schedule> made() { return host().make<Schedule>("schedule", GetParam().name, GetParam().options); }
  /// At all steps of short runs, at some of long ones, and beyond the end.
  static std::vector<double> rates(const Schedule& schedule, double peak) {
    std::vector<double> all;
    for (const std::int64_t steps : {1, 2, 3, 10, 1000, 1'000'000'000}) {
      const std::int64_t stride = std::max<std::int64_t>(1, steps / 100);
      for (std::int64_t done = 0; done <= steps + 2 * stride; done += stride) all.push_back(schedule.rate(done, steps, peak));
    }
    return all;
  }
};

// The host refuses what is not finite or out of range.
TEST_P(ScheduleConformance, RatesAreLegalAtEveryStep) {
  const auto schedule = made();
  EXPECT_FALSE(schedule->describe().empty());
  for (const double peak : {0.0, 1e-9, 3e-4, 1.0}) {
    std::vector<double> found;
    ASSERT_NO_THROW(found = rates(*schedule, peak));
    for (const double rate : found) ASSERT_TRUE(std::isfinite(rate));
  }
}

TEST_P(ScheduleConformance, TheRateIsAboveZeroSomewhere) {
  double most = 0;
  for (const double rate : rates(*made(), 1e-3)) most = std::max(most, rate);
  EXPECT_GT(most, 0);
}

TEST_P(ScheduleConformance, AnswersAreTheSameEachTimeAndInAnyThread) {
  const auto schedule = made();
  const std::vector<double> expected = rates(*schedule, 1e-3);
  EXPECT_EQ(rates(*made(), 1e-3), expected);
  std::vector<std::vector<double>> found(4);
  std::vector<std::thread> threads;
  for (std::vector<double>& into : found) threads.emplace_back([&] { into = rates(*schedule, 1e-3); });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<double>& each : found) EXPECT_EQ(each, expected);
}

INSTANTIATE_TEST_SUITE_P(Schedules, ScheduleConformance,
                         ::testing::ValuesIn(testing::candidates("schedule", "CONSIST_CONFORMANCE_SCHEDULES")),
                         [](const auto& info) { return testing::test_name(info); });

}  // namespace
}  // namespace consist
