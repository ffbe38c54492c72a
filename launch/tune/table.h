// What a search has found, for people.
#pragma once

#include <string>

#include "launch/tune/search.h"

namespace consist::launch {

/// "Fit h200: 2131 configurations, planned and simulated in 41.2 s (702 whole, ...": what was searched.
std::string extent_of(const SearchResult& result, const std::string& machine);

/// A table of the first `rows` and of the Pareto front of speed and memory.
std::string table_of(const SearchResult& result, std::size_t rows);

/// Why `winner` is faster than `other`: the parts of the step that differ most.
std::string why(const Candidate& winner, const Candidate& other);

}  // namespace consist::launch
