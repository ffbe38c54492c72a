// Around the best configuration: the cost of one step in each option that was searched.
#pragma once

#include <string>
#include <vector>

#include "launch/search/tune/findings.h"
#include "launch/search/tune/ranking.h"
#include "launch/search/tune/space.h"

namespace consist::launch {

/// Predictions that are so near to each other are not told apart: fraction.
inline constexpr double margin_of_ties = 0.02;

/// Another value of one option; all others stay, but for those that have an effect beside this value alone.
struct OptionStep {
  std::string value;
  double loss = 0;           ///< what the objective loses, relative: 0.03: the step takes 3% longer. Below 0: it gains
  bool fits = true;          ///< else there is no `loss`
  bool is_simulated = true;  ///< as the best one; else the loss is that of estimates
};

/// One option, and where a step in it leads.
struct OptionSteps {
  enum class Shape {
    basin,  ///< every step that fits costs margin_of_ties at most
    slope,  ///< some do
    peak,   ///< none does, or none fits
  };
  std::string option;
  std::string value;              ///< of the best configuration
  std::vector<OptionStep> steps;  ///< at least one: what costs the least first, what does not fit last
  Shape shape() const;
};
/// "basin", "slope", "peak".
const char* name_of(OptionSteps::Shape shape);

/// The points to which a step from `best` leads, by option and value: the next smaller and larger micro-batch, every other value
/// of the rest. Those of `numerics` alone.
struct StepPoints {
  std::string option, value;
  Points points;  ///< with an option that has an effect beside this value alone: one for each of its values
};
std::vector<StepPoints> steps_from(const Space& space, const Point& best, Numerics numerics);

/// By what is known of the points of steps_from(), and of the best of the three best other layouts (as the option "strategy"):
/// from simulations where there are some of both, else from estimates, which are corrected. The steepest option first.
std::vector<OptionSteps> options_around(const Space& space, const Findings& found, const Corrections& corrections,
                                        const Point& best, Numerics numerics);

/// For people: a line for each option that is a peak or a slope, and one for all basins.
std::string text_of(const std::vector<OptionSteps>& around);

}  // namespace consist::launch
