// The same training on one rank, which every layout must equal: no strategy, fp32, no micro-batches, nothing packed, nothing
// recomputed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/interpreter/step_run.h"

namespace consist::prove {

/// Differences between sums in another order in fp64, as a part of a tensor's largest element.
inline constexpr double tolerance = 1e-9;

/// The same where ops of plugins round to f32.
inline constexpr double rounded_tolerance = 1e-4;

/// The run on one rank. A loss that depends on micro-batches (a router's balance loss) keeps them.
RunConfig alone(const interpreter::RankPrograms& programs);

/// A value that is not the one rank's.
struct Difference {
  std::string what;         ///< "model.norm.weight", "the loss"
  double relative = 0;      ///< to the largest element; infinite for NaN
  std::size_t element = 0;  ///< the one that differs most
  double found = 0, expected = 0;
  std::string text;  ///< a sentence
};

/// The results of the steps behind the first `steps`.
interpreter::Outcome behind(const interpreter::Outcome& all, int steps);

/// Differences of losses, norms, parameters, states and gradients.
std::vector<Difference> differences(const interpreter::Outcome& found, const interpreter::Outcome& expected,
                                    double within = tolerance);
/// Adds the difference between two lists of numbers, if there is one.
void compare(std::vector<Difference>& differences, const std::string& what, const std::vector<double>& found,
             const std::vector<double>& expected, double within = tolerance);

}  // namespace consist::prove
