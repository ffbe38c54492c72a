// The errors that calibrate writes, from the steps that it has checked.
#include <gtest/gtest.h>

#include <cmath>

#include "launch/measure/step_errors.h"

namespace consist::launch {
namespace {

TEST(CalibrateErrors, HoldKindsOfThreeMeasuredStepsOrMore) {
  const std::vector<std::string> alone{"one device"}, over_links{"one device", "socket within a node"},
      both{"one device", "socket within a node", "offload"};
  const std::vector<CheckedStep> steps{{alone, 1.01, 1},      {alone, 1, 1.02},   {alone, 1, 1},    {over_links, 1.05, 1},
                                       {over_links, 1, 1.03}, {over_links, 1, 1}, {both, 1.5, 1.0}, {both, 1, 1}};
  const std::vector<StepError> errors = errors_of(steps);
  ASSERT_EQ(errors.size(), 2U) << "two steps with offload are not enough";
  EXPECT_EQ(errors[0].kind, "one device");
  EXPECT_EQ(errors[0].steps, 3) << "those of other kinds do not count";
  EXPECT_EQ(errors[0].error.source, FigureSource::measured_here);
  EXPECT_NEAR(errors[0].error.value, 3.182446 * std::sqrt((1e-4 + 4e-4) / 3), 1e-6);
  EXPECT_EQ(errors[1].kind, "socket within a node");
  EXPECT_EQ(errors[1].steps, 3) << "those with offload do not count";
  EXPECT_NEAR(errors[1].error.value, 3.182446 * std::sqrt((25e-4 + 9e-4) / 3), 1e-6);
  EXPECT_TRUE(errors_of({}).empty());
}

}  // namespace
}  // namespace consist::launch
