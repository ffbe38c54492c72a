// A comparison for programs: what consist compare --json prints (docs/json.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/compare/outcome.h"
#include "launch/compare/rows.h"

namespace consist::launch {

/// The first event: the rows. `output`: the folder of the runs; empty where nothing is run.
nlohmann::ordered_json comparison_event(const std::vector<CompareRow>& rows, const std::string& output);

/// A run of a row, counted from 0, as it starts.
nlohmann::ordered_json started_event(std::size_t row, int repeat, const std::string& archive);
/// As it ends; run.status is the state.
nlohmann::ordered_json ended_event(std::size_t row, const RunOutcome& run);

/// The last event: the table, with the unit of each figure in its key, and the fastest row of each model where it can be told.
/// `summary`: the comparison's archive; empty: none was written.
nlohmann::ordered_json result_event(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes,
                                    const std::string& summary);

}  // namespace consist::launch
