// Trained weights beside a reference that keeps two sums of each.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>

#include "tests/parity/reference.h"

namespace consist::test {

/// Both sums agree within `tolerance`, relative to the root mean square of the reference's elements.
inline void expect_weight_sums(const std::string& name, std::span<const float> values, const WeightSums& expected,
                               double tolerance) {
  double sum = 0, squares = 0;
  for (const float v : values) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const auto count = static_cast<double>(values.size());
  const double rms = std::sqrt(expected.sum_of_squares / count);
  EXPECT_NEAR(sum, expected.sum, tolerance * rms * count) << name;
  EXPECT_NEAR(squares, expected.sum_of_squares, 2 * tolerance * rms * rms * count) << name;
}

}  // namespace consist::test
