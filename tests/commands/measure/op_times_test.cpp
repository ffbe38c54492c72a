// The time that measuring adds to a kernel is taken off its sample.
#include "launch/measure/op_times.h"

#include <gtest/gtest.h>

namespace consist::launch {
namespace {

OpSample sample_of(double seconds) {
  OpSample sample;
  sample.op = "linear";
  sample.seconds = seconds;
  return sample;
}

TEST(OpTimes, WhatMeasuringTakesIsTheStepsDifferencePerKernel) {
  const std::vector<OpSample> step{sample_of(10e-6), sample_of(30e-6)};
  EXPECT_NEAR(measuring_seconds(step, 36e-6), 2e-6, 1e-12);
  EXPECT_EQ(measuring_seconds(step, 45e-6), 0) << "a step that takes longer than its kernels";
  EXPECT_EQ(measuring_seconds({}, 1), 0);
}

TEST(OpTimes, MeasuringIsTakenOffButHalfOfASampleStays) {
  std::vector<OpSample> step{sample_of(10e-6), sample_of(3e-6)};
  take_off(step, 2e-6);
  EXPECT_NEAR(step[0].seconds, 8e-6, 1e-12);
  EXPECT_NEAR(step[1].seconds, 1.5e-6, 1e-12);
}

}  // namespace
}  // namespace consist::launch
