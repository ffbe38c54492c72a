// What each choice of a comparison is worth, from the rows that differ in it alone.
#pragma once

#include <string>
#include <vector>

#include "launch/compare_rows.h"

namespace consist::launch {

/// For every varied option but the model, each value against the option's first one: geometric means, over the pairs of finished
/// rows that differ in this option only, of speed, memory and bytes sent; said so where no pair differs by more than its spread.
/// Then, per model, the fastest row and those that cannot be told apart from it; last, what the runs said about their own
/// choices. Empty if nothing can be compared and nothing was said.
std::string effects_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes);

}  // namespace consist::launch
