// Sums of a profile, and the part of a step that is then idle.
#include "core/record/profile.h"

#include <gtest/gtest.h>

#include "core/record/bubble_fraction.h"

namespace consist {
namespace {

/// Three instructions: two of compute, of which the second is the optimizer's, and a message.
Program three() {
  Program program;
  program.instructions.resize(3);
  program.instructions[1].tag.phase = Phase::optimizer;
  program.instructions[2].queue = Queue::communication(0);
  return program;
}

TEST(ProfileOfSteps, IsTheMeanBehindTheFirstStep) {
  Profile profile;
  profile.add(std::vector<LaunchTime>{{0, 100}, {0, 100}, {0, 100}});
  EXPECT_EQ(profile.steps(), 0);
  profile.add({});
  profile.add(std::vector<LaunchTime>{{0, 1}, {1, 3}, {1, 5}});
  profile.add(std::vector<LaunchTime>{{0, 2}, {2, 6}, {1, 5}});
  EXPECT_EQ(profile.steps(), 2);
  EXPECT_DOUBLE_EQ(profile.seconds(0), 1.5);
  EXPECT_DOUBLE_EQ(profile.seconds(1), 3);
  EXPECT_DOUBLE_EQ(profile.seconds(2), 4);
  EXPECT_DOUBLE_EQ(profile.compute_seconds(three(), false), 1.5);
  EXPECT_DOUBLE_EQ(profile.compute_seconds(three(), true), 3);
}

TEST(ProfileOfSteps, IdleIsWhatForwardAndBackwardLeaveOfAStepWithoutItsOptimizer) {
  Profile profile;
  const std::vector<LaunchTime> times{{0, 1}, {1, 3}, {1, 5}};
  profile.add(times);
  profile.add(times);
  EXPECT_DOUBLE_EQ(bubble_fraction(three(), profile, 6), 0.75);
  EXPECT_EQ(bubble_fraction(three(), profile, 2.5), 0) << "busy for longer than there is: clocks that differ";
  EXPECT_EQ(bubble_fraction(three(), profile, 2), 0) << "nothing but the optimizer";
}

}  // namespace
}  // namespace consist
