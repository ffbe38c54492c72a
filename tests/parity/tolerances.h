// How far results that should be equal may lie apart, stated once. All are relative.
#pragma once

#include <stdexcept>
#include <string>

namespace consist::test {

/// The same run in another layout (ranks, micro-batches, buckets): the same values are summed in another order, and each sum
/// rounds as its precision does.
struct LayoutTolerance {
  const char* precision;
  double loss;  ///< of every one of the first 20 steps
};
inline constexpr LayoutTolerance layout_tolerances[] = {{"fp32", 1e-5}, {"bf16", 2e-3}};

inline double layout_loss_tolerance(const std::string& precision) {
  for (const LayoutTolerance& row : layout_tolerances) {
    if (precision == row.precision) return row.loss;
  }
  throw std::invalid_argument("no tolerance is stated for the precision " + precision);
}

/// The same run by PyTorch and transformers in fp32, five steps. Measured deviations are a few units in the last place, which
/// AdamW's division by sqrt(v) enlarges where a gradient is close to 0; these bounds are five times tighter than what is promised
/// (1e-5 and 1e-4).
inline constexpr double reference_loss_tolerance = 2e-6;
inline constexpr double reference_norm_tolerance = 2e-5;
/// Of the sums over a weight's elements after the last step: per element, relative to the elements' root mean square.
inline constexpr double reference_weight_tolerance = 2e-6;
/// A bias of k adds nearly the same to all scores of a query where rope turns slowly, and softmax does not see that: such
/// elements have gradients of rounding errors, which AdamW scales up to its full step.
inline constexpr double reference_key_bias_tolerance = 3e-5;

}  // namespace consist::test
