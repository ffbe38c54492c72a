// The fit of a device's clock to its load, from times of steps.
#include "launch/measure/throttling_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "launch/measure/op_times.h"

namespace consist::launch {
namespace {

using ::testing::HasSubstr;

OpSample product(double seconds) {
  return {.op = "linear", .dtype = DType::bf16, .flops = 1e12, .bytes = 1e9, .seconds = seconds, .kind = "products"};
}
OpSample moving(double seconds) {
  return {.op = "adamw", .dtype = DType::f32, .flops = 0, .bytes = 1e9, .seconds = seconds};
}

/// Steps of other mixtures on a device whose clock is this fit's. The samples have the times without load.
std::vector<std::vector<OpSample>> run(std::vector<std::vector<OpSample>> steps, const ThrottlingFit& device) {
  for (std::vector<OpSample>& step : steps) {
    // Times lengthen the step, and with it what the load follows.
    const std::vector<OpSample> unloaded = step;
    for (int round = 0; round < 20; ++round) {
      const std::vector<double> loads = loads_of(step, device);
      for (std::size_t n = 0; n < step.size(); ++n)
        step[n].seconds = unloaded[n].seconds * (1 + device.sensitivity_of(step[n]) * loads[n]);
    }
  }
  return steps;
}

std::vector<std::vector<OpSample>> steps() {
  std::vector<std::vector<OpSample>> all;
  for (const int products : {10, 40, 100}) {
    std::vector<OpSample> step(static_cast<std::size_t>(products), product(1e-3));
    for (int n = 0; n < 20; ++n) step.push_back(moving(1e-3));
    all.push_back(step);
  }
  return all;
}

TEST(ThrottlingFit, FindsTheDevicesFigures) {
  const ThrottlingFit device{.lag = 0.03, .memory_bound = 0.4, .demand = {{"products", 0.5}}};
  const std::vector<std::vector<OpSample>> measured = run(steps(), device);
  const ThrottlingFit fit = fit_throttling(measured);
  EXPECT_NEAR(fit.lag, 0.03, 0.002);
  EXPECT_NEAR(fit.demand.at("products"), 0.5, 0.05);
  EXPECT_NEAR(fit.memory_bound, 0.4, 0.1);
  EXPECT_LT(fit.unexplained, 0.2 * fit.before);
  EXPECT_THAT(text_of(fit), HasSubstr("the clock follows the load in "));

  // The point of the product has its time without load, wherever it was measured.
  const std::vector<DeviceRates::OpTimes> times = op_times(measured, fit);
  ASSERT_EQ(times.size(), 2U);
  const DeviceRates::OpTimes& linear = times[0].op == "linear" ? times[0] : times[1];
  ASSERT_EQ(linear.points.size(), 1U);
  EXPECT_NEAR(linear.points[0].seconds / (1 + linear.points[0].load), 1e-3, 1e-5);
  EXPECT_EQ(linear.demand, fit.demand.at("products"));
  EXPECT_GT(linear.points[0].load, 0);
}

TEST(ThrottlingFit, ADeviceWithoutItHasNone) {
  std::vector<std::vector<OpSample>> noisy = steps();
  unsigned state = 1;
  for (std::vector<OpSample>& step : noisy) {
    for (OpSample& sample : step) sample.seconds *= 1 + 0.02 * ((state = state * 1664525U + 1013904223U) >> 16U) / 65536.0;
  }
  const ThrottlingFit fit = fit_throttling(noisy);
  EXPECT_EQ(fit.lag, 0);
  EXPECT_THAT(text_of(fit), HasSubstr("does not follow the load"));
  for (const DeviceRates::OpTimes& times : op_times(noisy, fit)) {
    EXPECT_EQ(times.demand, 0);
    EXPECT_EQ(times.points[0].load, 0);
    EXPECT_NEAR(times.points[0].seconds, 1.01e-3, 2e-6) << "the mean";
  }
}

}  // namespace
}  // namespace consist::launch
