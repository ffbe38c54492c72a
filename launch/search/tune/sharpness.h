// Sharpness of the result of a search: steps around the best configuration, and the best ones at other rates of the machine.
#pragma once

#include <vector>

#include "launch/search/tune/search.h"
#include "launch/search/tune/trier.h"

namespace consist::launch {

/// options_around() the best, after the step of each option that is estimated to cost the least was simulated: eight at most,
/// none after `until` seconds of the search (0: no limit).
std::vector<OptionSteps> steps_around(const Point& best, Numerics numerics, Trier& trier, double until);

/// The best of the candidates, which are in the objective's order, at each of rate_changes(): of the first six that 5% may bring
/// to the front, the first unless another is better by 0.1%. Compiles each once, in fewest_micro_batches() at most.
std::vector<OtherRates> at_other_rates(const std::vector<Candidate>& candidates, const SearchRequest& request, Trier& trier);

}  // namespace consist::launch
