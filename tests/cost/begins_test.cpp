// Times at which instructions begin.
#include "consist/begins.h"

#include <gtest/gtest.h>

#include <vector>

#include "consist/error.h"

namespace consist {
namespace {

/// Compute of 1, 2 and 4 seconds, and something on another queue between the first two.
Program three_of_compute() {
  Program program;
  program.instructions.resize(4);
  program.instructions[1].queue = Queue::device_to_host();
  return program;
}
const std::vector<double> seconds{1, 100, 2, 4};

TEST(Begins, OtherQueuesTakeNoTimeOfCompute) {
  const Begins begins(three_of_compute(), seconds);
  const std::vector<double> expected{0, 1, 1, 3, 7};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(begins.of(static_cast<InstructionId>(i)), expected[i]) << i;
  EXPECT_EQ(begins.end(), 7);
}

TEST(Begins, FindsInstructionsByTime) {
  const Begins begins(three_of_compute(), seconds);
  EXPECT_EQ(begins.first_from(0), 0);
  EXPECT_EQ(begins.first_from(0.5), 1);
  EXPECT_EQ(begins.first_from(1), 1);
  EXPECT_EQ(begins.first_from(2), 3);
  EXPECT_EQ(begins.first_from(5), 4) << "none: behind the last one";
  EXPECT_EQ(begins.last_until(-1, 4), 0);
  EXPECT_EQ(begins.last_until(0.5, 4), 0);
  EXPECT_EQ(begins.last_until(1, 4), 2) << "of those that begin together the last one";
  EXPECT_EQ(begins.last_until(1, 2), 1) << "in front of instruction 2";
  EXPECT_EQ(begins.last_until(100, 4), 3);
}

TEST(Begins, NeedsAMachine) {
  const Program program = three_of_compute();
  EXPECT_THROW(Begins{program}, ProgramError);
}

}  // namespace
}  // namespace consist
