// The power that calibrate takes from the sensors of a device.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "launch/measure/power.h"

namespace consist::launch {
namespace {

TEST(CalibratePower, IsReadFromTheSensorOfThatName) {
  EXPECT_EQ(power_reading({{"temperature", "degC", 50}, {"power", "W", 312.5}}), 312.5);
  EXPECT_FALSE(power_reading({}).has_value()) << "processors have none";
  EXPECT_FALSE(power_reading({{"power", "W", std::numeric_limits<double>::quiet_NaN()}}).has_value()) << "it does not tell";
  EXPECT_FALSE(power_reading({{"power", "mW", 312500}}).has_value());
  EXPECT_EQ(clock_reading({{"power", "W", 312.5}, {"sm_clock", "Hz", 1.4e9}}), 1.4e9);
}

/// A device of 80 W idle and 600 W under load, in steps that compute for different shares of their time.
TEST(CalibratePower, UnderLoadIsWhatIsLeftOfStepsWithoutTheirIdleTime) {
  std::vector<PowerSample> samples;
  for (const double busy : {0.9, 0.6, 1.0})
    samples.push_back({600 * busy + 80 * (1 - busy), 2, 2 * busy, busy > 0.8 ? 1.4e9 : 0});
  EXPECT_NEAR(watts_under_load(80, samples).value(), 600, 1e-9);
  EXPECT_FALSE(watts_under_load(80, {}).has_value());

  const Power power = measured_power({700}, 80, samples);
  EXPECT_EQ(power.limit.value, 700);
  EXPECT_EQ(power.clock.value, 1.4e9) << "of the steps whose clock is known";
  EXPECT_EQ(power.idle.source, FigureSource::measured_here);
  ASSERT_EQ(power.loads.size(), 1U);
  EXPECT_EQ(power.loads[0].work, "*");
  EXPECT_EQ(power.loads[0].watts.source, FigureSource::measured_here);
}

TEST(CalibratePower, IsNotKnownWithoutASensor) {
  EXPECT_FALSE(measured_power({}, std::nullopt, {}).is_known());
  EXPECT_TRUE(measured_power({700}, std::nullopt, {}).is_bound()) << "the data sheet's limit stays";
  EXPECT_FALSE(measured_power({}, 80, {}).is_known()) << "no step was measured";
}

}  // namespace
}  // namespace consist::launch
