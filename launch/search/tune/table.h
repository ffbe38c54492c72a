// Texts that show the findings of a search.
#pragma once

#include <string>

#include "launch/search/tune/search.h"

namespace consist::launch {

/// "Fit h200: 2131 configurations, planned and simulated in 41.2 s (702 whole, ...": what was searched.
std::string extent_of(const SearchResult& result, const std::string& machine);

/// A table of the first `rows`, of the Pareto front of speed and memory, and of the fastest of each transport; with the cost of a
/// billion tokens where `price` (--price) has one for the machine, and its energy where the machine's power is known.
std::string table_of(const SearchResult& result, std::size_t rows, const std::string& price, const Machine& machine,
                     const Power& power = {});

/// Why `winner` is faster than `other`: the parts of the step that differ most.
std::string why(const Candidate& winner, const Candidate& other);

}  // namespace consist::launch
