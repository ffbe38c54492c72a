// Use of the processors during a run's steps, by the job and by others.
#include "core/record/processor_use.h"

#include <gtest/gtest.h>

namespace consist {
namespace {

constexpr const char* before_text =
    "cpu  300 0 0 600 0 0 0 0 0 0\n"
    "cpu0 100 0 0 200 0 0 0 0 0 0\n"
    "cpu1 100 0 0 200 0 0 0 0 0 0\n"
    "cpu2 100 0 0 200 0 0 0 0 0 0\n"
    "intr 1 2 3\n";
constexpr const char* after_text =
    "cpu  900 0 0 600 0 0 0 0 0 0\n"
    "cpu0 180 5 5 200 0 5 5 0 0 0\n"
    "cpu1 130 0 0 220 10 0 0 40 0 0\n"
    "cpu2 900 0 0 200 0 0 0 0 0 0\n";

bool first_two(int processor) {
  return processor < 2;
}

TEST(ProcessorUse, OthersAreWhatTheJobDidNotUse) {
  const auto before = read_processor_times(before_text, first_two), after = read_processor_times(after_text, first_two);
  ASSERT_TRUE(before && after);
  const double tick = before->idle / 400;
  const ProcessorUse use = processor_use(*before, *after, 50 * tick);
  EXPECT_NEAR(use.own, 0.25, 1e-9);
  EXPECT_NEAR(use.stolen, 0.20, 1e-9);
  EXPECT_NEAR(use.idle, 0.15, 1e-9);
  EXPECT_NEAR(use.others, 0.40, 1e-9);
}

TEST(ProcessorUse, IsUnknownWhereTheSystemDoesNotTell) {
  EXPECT_FALSE(read_processor_times("", first_two));
  EXPECT_FALSE(read_processor_times("cpu0 0 0 0 0 0 0 0 0 0 0\n", first_two));
  EXPECT_FALSE(read_processor_times("cpu0 0 0 x\n", first_two));
}

}  // namespace
}  // namespace consist
