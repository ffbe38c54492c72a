// Every op with a gradient emits one that is that of its forward, by difference quotients of the
// example's kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "consist/error.h"
#include "tests/conformance/parts/kernel_suite.h"
#include "tests/conformance/parts/trained_example.h"

namespace consist {
namespace {

using testing::Numbers;
using testing::TrainedExample;

class KernelsConformanceOfGradients : public testing::KernelSuite {};

/// The gradient at one element, from the loss on both sides, as an interval: at a kink any number between the slopes will do.
struct Slope {
  double least, most;
};

Slope slope_at(TrainedExample& example, std::size_t input, std::int64_t element, double step) {
  const double here = example.loss();
  const auto moved = [&](double by) { return example.loss_with(input, element, by); };
  const double right = (moved(step) - here) / step, left = (here - moved(-step)) / step;
  const double wide = (right + left) / 2, narrow = (moved(step / 2) - moved(-step / 2)) / step;
  if (std::abs(wide - narrow) < 0.02 * std::max(std::abs(wide), 0.1)) return {narrow, narrow};
  return {std::min({left, right, narrow}), std::max({left, right, narrow})};
}

void expect_gradient(TrainedExample& example, std::size_t input) {
  const bool rough = example.has_bf16();
  const double step = rough ? 0.25 : 1.0 / 64;
  const std::vector<double> gradient = example.gradient(input);
  double largest = 0.01;
  for (const double g : gradient) largest = std::max(largest, std::abs(g));
  const auto elements = static_cast<std::int64_t>(gradient.size());
  const std::int64_t stride = std::max<std::int64_t>(1, elements / 64);  // so many will show what is wrong
  for (std::int64_t i = 0; i < elements; i += stride) {
    const Slope slope = slope_at(example, input, i, step);
    const double found = gradient[static_cast<std::size_t>(i)];
    const double tolerance = (rough ? 0.1 : 0.005) * std::max({largest, std::abs(slope.least), std::abs(slope.most)});
    EXPECT_TRUE(found >= slope.least - tolerance && found <= slope.most + tolerance)
        << "element " << i << " of the gradient of input " << input << " is " << found << "; by difference quotients it is "
        << slope.least << (slope.most > slope.least ? " to " + std::to_string(slope.most) : "");
    if (::testing::Test::HasFailure()) return;
  }
}

TEST_P(KernelsConformanceOfGradients, TheyAreThoseOfForward) {
  if (const std::string reason = open_device(); !reason.empty()) GTEST_SKIP() << reason;
  for (const KernelExample& example : examples()) {
    SCOPED_TRACE(example.op);
    const auto trained = testing::trained_example(device(), device_kind_, example, numbers_for(example));
    if (trained == nullptr) continue;  // it has no gradient, or no input that could have one
    for (const std::size_t input : trained->inputs_with_gradient()) {
      expect_gradient(*trained, input);
      if (HasFailure()) break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelsConformanceOfGradients,
                         ::testing::ValuesIn(testing::candidates("kernels", "CONSIST_CONFORMANCE_KERNELS")),
                         [](const auto& info) { return testing::test_name(info); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KernelsConformanceOfGradients);

}  // namespace
}  // namespace consist
