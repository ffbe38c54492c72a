// The kernels of the update, as kernel_test.cpp has those of the model.
#include <gmock/gmock.h>

#include "tests/kernels/device_kernel.h"

namespace consist {
namespace {

using reference::random_value;
using reference::zeros;
using test::DeviceKernel;
using test::DeviceKernels;
using test::expect_close;
using test::kWithAndWithout;
using test::Value;
using test::Values;

TEST_P(DeviceKernel, ClippingAndItsNorm) {
  const Value a = random({100, 101}), b = random_value(engine_, gradient(), {7}), empty = random({0});
  double squares = 0;
  for (const Value* t : {&a, &b}) {
    for (const double x : t->data) squares += x * x;
  }
  expect_close(run("sum_of_squares", {a, b, empty})[0], Value{DType::f32, {}, {squares}}, 1e-6, "sum of squares");
  const Value nine{DType::f32, {}, {9}};
  for (const auto& [max_norm, coefficient] : {std::pair{0.0, 1.0}, {1.5, 1.5 / (3 + 1e-6)}, {4.0, 1.0}}) {
    const Values made = run("clip_coefficient", {nine}, {{"max_norm", max_norm}});
    expect_close(made[0], Value{DType::f32, {}, {3}}, 1e-7, "norm");
    expect_close(made[1], Value{DType::f32, {}, {coefficient}}, 1e-7, "coefficient");
  }
}

TEST_P(DeviceKernel, AdamW) {
  const double rate = 0.01, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-3, decay = 0.1, coefficient = 0.5;
  const Value scalars{
      DType::f32,
      {4},
      {static_cast<float>(rate), static_cast<float>(1 - std::pow(beta1, 3)), static_cast<float>(1 - std::pow(beta2, 3)), 3}};
  const Value clip{DType::f32, {}, {coefficient}};
  const Attributes attributes{{"beta1", beta1},
                              {"beta2", beta2},
                              {"epsilon", epsilon},
                              {"weight_decay", decay},
                              {"stochastic_rounding", std::int64_t{0}},
                              {"seed", std::int64_t{1}}};
  for (const bool with_master : kWithAndWithout) {
    Values in = {scalars, clip};
    Values expected;
    for (const std::int64_t n : {1, 37, 1000}) {  // several parameters in one instruction
      const Value p = random({n}), g = random_value(engine_, gradient(), {n});
      Value master = random_value(engine_, DType::f32, {n}), m = random_value(engine_, DType::f32, {n}, 0.1),
            v = random_value(engine_, DType::f32, {n}, 0.1);
      for (double& x : v.data) x = std::abs(x);
      for (auto value : {std::optional(p), std::optional(g), with_master ? std::optional(master) : std::nullopt, std::optional(m),
                         std::optional(v)})
        in.push_back(value);
      Value weight = with_master ? master : p;
      for (std::size_t i = 0; i < weight.data.size(); ++i) {
        const double gradient = coefficient * g.data[i];
        m.data[i] = beta1 * m.data[i] + (1 - beta1) * gradient;
        v.data[i] = beta2 * v.data[i] + (1 - beta2) * gradient * gradient;
        weight.data[i] = weight.data[i] * (1 - rate * decay) -
                         rate / scalars.data[1] * m.data[i] / (std::sqrt(v.data[i]) / std::sqrt(scalars.data[2]) + epsilon);
      }
      Value rounded = weight;
      rounded.dtype = dtype();
      expected.insert(expected.end(), {rounded, with_master ? std::optional(weight) : std::nullopt, m, v});
    }
    const Values made = run("adamw", in, attributes);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(made[i].has_value(), expected[i].has_value());
      const bool is_parameter = i % 4 == 0;
      if (expected[i])
        expect_close(made[i], *expected[i], is_parameter && narrow() ? 4e-3 : 1e-6, "adamw output " + std::to_string(i));
    }
  }
}

TEST_P(DeviceKernels, StochasticRoundingIsUnbiased) {
  // One Adam step moves each weight by 1/1000 of the distance between bfloat16 neighbours: rounded to nearest nothing would ever
  // change.
  constexpr std::int64_t n = 200'000;
  const double rate = static_cast<float>(1.0 / 128 / 1000);
  const Value scalars{DType::f32, {4}, {rate, 1, 1, 1}}, one{DType::f32, {}, {1}};
  Value p = zeros(DType::bf16, {n}), g = zeros(DType::f32, {n}), m = zeros(DType::f32, {n}), v = m;
  for (double& x : p.data) x = 1.5;
  for (double& x : g.data) x = -1;
  Attributes attributes{
      {"beta1", 0.0},           {"beta2", 0.0}, {"epsilon", 0.0}, {"weight_decay", 0.0}, {"stochastic_rounding", std::int64_t{1}},
      {"seed", std::int64_t{5}}};
  const Value rounded = *test::run_kernel(*device_, "adamw", {scalars, one, p, g, std::nullopt, m, v}, attributes)[0];
  double moved = 0;
  for (const double x : rounded.data) {
    ASSERT_TRUE(x == 1.5 || x == 1.5 + 1.0 / 128) << x;
    moved += x - 1.5;
  }
  // The mean of n draws of probability 1/1000 has a standard deviation of 7 %.
  EXPECT_NEAR(moved / static_cast<double>(n) / rate, 1, 0.3);
  attributes.set("stochastic_rounding", std::int64_t{0});
  EXPECT_EQ(test::run_kernel(*device_, "adamw", {scalars, one, p, g, std::nullopt, m, v}, attributes)[0]->data, p.data);
}

/// Weights, and moments if they are there, of `n` elements with the same gradient of -1 after `steps` steps of two parameters
/// that are updated together: p, m, v of the first, p of the second.
Values after_steps(Device& device, std::int64_t n, int steps, double rate, double beta1, double beta2, std::int64_t seed) {
  const Attributes attributes{
      {"beta1", beta1}, {"beta2", beta2}, {"epsilon", 0.0}, {"weight_decay", 0.0}, {"stochastic_rounding", std::int64_t{1}},
      {"seed", seed}};
  const Value one{DType::f32, {}, {1}};
  Value g = zeros(DType::f32, {n}), p = zeros(DType::bf16, {n}), m = zeros(DType::bf16, {n}), v = zeros(DType::bf16, {n});
  for (double& x : g.data) x = -1;
  for (double& x : p.data) x = 1.5;
  Value p2 = p, m2 = m, v2 = v;
  for (int step = 1; step <= steps; ++step) {
    const auto correction = [&](double beta) { return static_cast<float>(1 - std::pow(beta, step)); };
    const Value scalars{
        DType::f32, {4}, {static_cast<float>(rate), correction(beta1), correction(beta2), static_cast<float>(step)}};
    const Values made =
        test::run_kernel(device, "adamw", {scalars, one, p, g, std::nullopt, m, v, p2, g, std::nullopt, m2, v2}, attributes);
    p = *made[0], m = *made[2], v = *made[3], p2 = *made[4], m2 = *made[6], v2 = *made[7];
  }
  return {p, m, v, p2};
}

double mean_of(const Value& value) {
  double sum = 0;
  for (const double x : value.data) sum += x;
  return sum / static_cast<double>(value.data.size());
}

// Each of 32 steps moves a weight by an eighth of the distance between its bf16 neighbours: by one distance with probability 1/8.
TEST_P(DeviceKernels, StochasticRoundingDrawsAnewInEveryStepAndParameter) {
  constexpr std::int64_t n = 4000;
  constexpr int steps = 32;
  constexpr double distance = 1.0 / 128, rate = distance / 8;
  const Values made = after_steps(*device_, n, steps, rate, 0, 0, 5);
  double mean = 0, variance = 0, both = 0;
  for (std::size_t i = 0; i < made[0]->data.size(); ++i) {
    const double moved = (made[0]->data[i] - 1.5) / distance, other = (made[3]->data[i] - 1.5) / distance;
    ASSERT_EQ(moved, std::round(moved));
    mean += moved / n;
    variance += (moved - 4) * (moved - 4) / n;
    both += (moved - 4) * (other - 4) / n;
  }
  // A binomial distribution: mean 4, variance 32 · 1/8 · 7/8 = 3.5. Were the draws of all steps the same, the variance would be
  // 112; of both parameters, their covariance 3.5. The tolerances are four standard deviations and more.
  EXPECT_NEAR(mean, 4, 0.15);
  EXPECT_NEAR(variance, 3.5, 0.4);
  EXPECT_NEAR(both, 0, 0.3);
  const auto weights = [&](std::int64_t seed) { return after_steps(*device_, n, 2, rate, 0, 0, seed)[0]->data; };
  EXPECT_NE(weights(5), weights(6)) << "the seed decides nothing";
  EXPECT_EQ(weights(5), weights(5)) << "a run does not repeat";
}

// Rounded to the nearest, moments would stop where a step changes them by less than half the distance to their neighbours: m at
// 0.98, v at 0.96.
TEST_P(DeviceKernels, StochasticRoundingKeepsMomentsMoving) {
  constexpr std::int64_t n = 2000;
  constexpr int steps = 90;
  const double beta1 = 0.9, beta2 = 0.95;
  const Values made = after_steps(*device_, n, steps, 0, beta1, beta2, 5);
  EXPECT_NEAR(mean_of(*made[1]), -(1 - std::pow(beta1, steps)), 1e-3);
  EXPECT_NEAR(mean_of(*made[2]), 1 - std::pow(beta2, steps), 1e-3);
  EXPECT_EQ(mean_of(*made[0]), 1.5) << "at a rate of 0 weights stay";
  // On the way there, where most values lie between two neighbours, each step would add what it is biased by.
  const Values early = after_steps(*device_, n, 6, 0, beta1, beta2, 5);
  EXPECT_NEAR(mean_of(*early[1]), -(1 - std::pow(beta1, 6)), 3e-4);
  EXPECT_NEAR(mean_of(*early[2]), 1 - std::pow(beta2, 6), 3e-4);
}

// A weight and its two moments, each of which lies half way between two neighbours, are rounded apart from each other.
TEST_P(DeviceKernels, StochasticRoundingDrawsForEachTensor) {
  constexpr std::int64_t n = 20'000;
  constexpr double ulp = 1.0 / 128;  // between 1 and 2
  const Attributes attributes{
      {"beta1", 0.5},           {"beta2", 0.5}, {"epsilon", 0.0}, {"weight_decay", 0.0}, {"stochastic_rounding", std::int64_t{1}},
      {"seed", std::int64_t{5}}};
  const Value one{DType::f32, {}, {1}}, hyper{DType::f32, {4}, {static_cast<float>(ulp / 2), 1, 1, 1}};
  Value p = zeros(DType::bf16, {n}), g = zeros(DType::f32, {n}), m = p, v = p;
  for (double& x : p.data) x = 1.5;
  for (double& x : g.data) x = 1 + ulp;      // m becomes 1 + ulp / 2
  for (double& x : m.data) x = 1;
  for (double& x : v.data) x = 1 + ulp;      // v becomes 1 + 1.5 ulp, and p a little more than 1.5 - ulp / 2
  const Values made = test::run_kernel(*device_, "adamw", {hyper, one, p, g, std::nullopt, m, v}, attributes);
  const std::vector<double>&weights = made[0]->data, &first = made[2]->data, &second = made[3]->data;
  int up[3] = {}, alike[3] = {};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool rounded_up[3] = {weights[i] > 1.5 - ulp / 2, first[i] > 1 + ulp / 2, second[i] > 1 + 1.5 * ulp};
    for (int k = 0; k < 3; ++k) {
      up[k] += rounded_up[k] ? 1 : 0;
      alike[k] += rounded_up[k] == rounded_up[(k + 1) % 3] ? 1 : 0;
    }
  }
  for (int k = 0; k < 3; ++k) {  // a standard deviation is 0.0035
    EXPECT_NEAR(static_cast<double>(up[k]) / n, 0.5, 0.03) << k;
    EXPECT_NEAR(static_cast<double>(alike[k]) / n, 0.5, 0.03) << k;
  }
}

}  // namespace
}  // namespace consist
