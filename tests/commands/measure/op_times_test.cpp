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

/// A file that calibrate had written was refused for a load of 4.7e-18.
TEST(OpTimes, AMachineFileTakesEveryLoad) {
  OpSample hot = sample_of(1e-3), cool = sample_of(1);
  for (OpSample* sample : {&hot, &cool}) sample->kind = sample->op;
  cool.kind = cool.op = "add";
  hot.flops = 1e9;
  cool.bytes = 1e6;
  ThrottlingFit fit;
  fit.lag = 0.02;
  fit.demand["linear"] = 1e-12;
  for (const DeviceRates::OpTimes& times : op_times({{hot, cool, hot}}, fit))
    for (const DeviceRates::OpTimes::Point& point : times.points)
      EXPECT_TRUE(point.load == 0 || point.load >= 1e-12) << point.load;
}

}  // namespace
}  // namespace consist::launch
