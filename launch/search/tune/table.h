// Texts that show the findings of a search.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "launch/predict/costs.h"
#include "launch/predict/goodput.h"
#include "launch/search/tune/search.h"

namespace consist::launch {

/// "Fit h200: 2131 configurations, planned and simulated in 41.2 s (702 whole, ...": what was searched.
std::string extent_of(const SearchResult& result, const std::string& machine);

/// Other figures of rows than their predictions, all by these; what is not known is in no column.
struct RowRates {
  std::optional<double> device_price;    ///< of a device and hour
  Power power;                           ///< of the machine
  std::optional<FailureModel> failures;  ///< --mtbf
};

/// By its prediction.
Costs costs_of(const Candidate& candidate, const RowRates& rates);
/// REQUIRES: rates.failures.
Goodput goodput_of(const Candidate& candidate, const RowRates& rates, const Machine& machine);

/// A table of the first `rows`, of the Pareto front, and of the fastest of each transport, with cost, energy and tokens of a day.
std::string table_of(const SearchResult& result, std::size_t rows, const RowRates& rates, const Machine& machine);

/// The first row's neighbours, and the best row at other rates.
std::string sharpness_text(const SearchResult& result);

/// Why `winner` is faster than `other`: the parts of the step that differ most.
std::string why(const Candidate& winner, const Candidate& other);

}  // namespace consist::launch
