// Texts that show the findings of a search.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "launch/predict/costs.h"
#include "launch/search/tune/search.h"

namespace consist::launch {

/// "Fit h200: 2131 configurations, planned and simulated in 41.2 s (702 whole, ...": what was searched.
std::string extent_of(const SearchResult& result, const std::string& machine);

/// By its prediction. `device_price`: of a device and hour; nothing: not known.
Costs costs_of(const Candidate& candidate, std::optional<double> device_price, const Power& power);

/// A table of the first `rows`, of the Pareto front, and of the fastest of each transport; with the cost of a billion tokens
/// where the price of a device and hour is known, and its energy where the machine's power is.
std::string table_of(const SearchResult& result, std::size_t rows, std::optional<double> device_price, const Machine& machine,
                     const Power& power = {});

/// The first row's neighbours, and the best row at other rates.
std::string sharpness_text(const SearchResult& result);

/// Why `winner` is faster than `other`: the parts of the step that differ most.
std::string why(const Candidate& winner, const Candidate& other);

}  // namespace consist::launch
