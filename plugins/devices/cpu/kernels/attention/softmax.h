// The softmax of a row of logits, in numbers that rows of several ranks can be combined from.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "plugins/devices/cpu/kernels/common/numbers.h"

namespace consist::cpu {

/// Largest logit of a row, and the sum of exp(logit − largest).
struct RowSoftmax {
  float largest, sum;
  double log_denominator() const { return static_cast<double>(largest) + std::log(sum); }
};

template <typename T>
RowSoftmax row_softmax(const T* logits, std::int64_t n) {
  float largest = load(logits[0]);
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(load(logits[i]), largest);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += exp_fast(load(logits[i]) - largest);
  return {largest, sum};
}

/// factor·softmax + of_target·one-hot of a row, rounded to D; `target` is the target's place in the row, negative if it is not in
/// it. D may be T, in place.
template <typename T, typename D>
void softmax_gradient(const T* logits, D* gradient, std::int64_t n, float log_denominator, float factor, std::int64_t target,
                      float of_target) {
  const float at_target = target >= 0 ? load(logits[target]) : 0.0F;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(gradient[i], factor * exp_fast(load(logits[i]) - log_denominator));
  // Rounded once: the two nearly cancel where the model is nearly certain of its target.
  if (target >= 0) store(gradient[target], std::fma(factor, exp_fast(at_target - log_denominator), of_target));
}

}  // namespace consist::cpu
