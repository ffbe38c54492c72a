// The effect of each choice of a comparison, from the rows that differ in it alone.
#pragma once

#include <string>
#include <vector>

#include "launch/compare/outcome.h"
#include "launch/compare/rows.h"

namespace consist::launch {

/// The worth of one value of an option beside the option's first one, by the rows that differ in it alone.
struct ChoiceEffect {
  std::string option, value, reference;
  Interval speed;           ///< ratio; unknown where rows were measured once or simulated
  std::size_t pairs = 0;    ///< of rows
  bool simulated = false;   ///< all rows of the pairs are
  std::string disturbance;  ///< the other work that makes the speed mean nothing; empty: none
  std::string text;         ///< a line for people, without its end
};
std::vector<ChoiceEffect> effects_of(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes);

/// For every varied option but the model, each value against the option's first one: geometric means, over the pairs of finished
/// rows that differ in this option only and are not the same program, of speed, memory and bytes sent. The interval of the speed
/// is that of its means over the pairs, from repeat to repeat; beside it the range of the pairs. Then, per model, the fastest
/// row, or those that cannot be told apart and why; last, what the runs said about their own choices. Empty if nothing can be
/// compared and nothing was said.
std::string effects_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes);

}  // namespace consist::launch
