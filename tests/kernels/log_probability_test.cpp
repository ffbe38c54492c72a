// lm_head_log_probability and its gradient.
#include <array>

#include "core/reference/gradients.h"
#include "tests/kernels/device_kernel.h"

namespace consist {
namespace {

using test::DeviceKernel;
using test::expect_close;
using test::kWithAndWithout;
using test::Value;
using test::Values;

/// Gradients of outputs by token; absent: that output has none.
std::optional<Value> seeds(std::mt19937& engine, bool present, const Value& targets) {
  if (!present) return std::nullopt;
  return reference::random_value(engine, DType::f32, targets.shape, 1, 0);
}

TEST_P(DeviceKernel, LmHeadLogProbability) {
  for (const auto& [tokens, c, vocabulary] : {std::array<std::int64_t, 3>{1, 3, 2}, {21, 9, 37}, {5, 8, 64}}) {
    const Value x = random({1, tokens, c}), w = random({vocabulary, c}, 0.25);
    Value targets = reference::random_ids(engine_, {1, tokens}, 0, static_cast<int>(vocabulary));
    if (tokens > 4) targets.data[3] = targets.data[static_cast<std::size_t>(tokens - 1)] = -1;
    const Values made = run("lm_head_log_probability", {x, w, targets});
    const Values expected = reference::lm_head_log_probability({x, w, targets});
    // Logits of up to 8, which a GPU may round to T (docs/ops.md).
    const double rounding = narrow() && GetParam().device != "cpu" ? 0x1p-7 : 0;
    expect_close(made[0], *expected[0], 2e-6 + rounding, "log-probabilities");
    expect_close(made[1], *expected[1], 2e-6 + rounding, "denominators");
    for (const int given : {1, 2, 3}) {
      for (const bool add : kWithAndWithout) {
        const std::optional<Value> by_likely = seeds(engine_, (given & 1) != 0, targets),
                                   by_denominator = seeds(engine_, (given & 2) != 0, targets);
        const Values gradients = reference::lm_head_log_probability_grad({x, w, targets, by_likely, by_denominator});
        Value dw = *gradients[1];
        const auto acc = accumulator(add, gradient(), dw);
        const Values found =
            run("lm_head_log_probability_grad", {x, w, targets, made[1], by_likely, by_denominator, acc}, with_gradient());
        expect_close(found[0], *gradients[0], tolerance() + 2 * rounding, "dx");
        expect_close(found[1], dw, tolerance() + 2 * rounding, "dw");
      }
    }
    targets.data[0] = static_cast<double>(vocabulary);
    EXPECT_THROW(run("lm_head_log_probability", {x, w, targets}), DataError);
  }
}

// All targets are nearly certain: what the softmax and the target add to a gradient cancels but for a small rest, which has the
// digits of its dtype. The logits are 8 and 0.
TEST_P(DeviceKernel, LogProbabilitiesOfCertainTargets) {
  constexpr std::int64_t words = 16;
  Value x = random({1, words, words}), w = random({words, words}), targets = reference::random_ids(engine_, {1, words}, 0, words);
  for (std::int64_t i = 0; i < words * words; ++i) {
    x.at(i) = i / words == i % words ? 8 : 0;
    w.at(i) = i / words == i % words ? 1 : 0;
  }
  for (std::int64_t i = 0; i < words; ++i) targets.at(i) = static_cast<double>(i);
  Value one{DType::f32, targets.shape, std::vector<double>(static_cast<std::size_t>(words), 1)};
  const Values made = run("lm_head_log_probability", {x, w, targets});
  const Values expected = reference::lm_head_log_probability_grad({x, w, targets, one, std::nullopt});
  const Values found =
      run("lm_head_log_probability_grad", {x, w, targets, made[1], one, std::nullopt, std::nullopt}, with_gradient());
  // fp32: a denominator of 8 has seven digits, of which 1 - p = 0.005 has four.
  expect_close(found[0], *expected[0], narrow() ? tolerance() : 1e-3, "dx");
  expect_close(found[1], *expected[1], narrow() ? tolerance() : 1e-3, "dw");
}

}  // namespace
}  // namespace consist
