// All that the page of a comparison shows, as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "launch/view/report/page.h"

namespace consist::launch {

/// The figures of the rows are those of compare's table, the statistics those of launch/compare. report.js reads it;
/// docs/report.md says what the page shows.
nlohmann::ordered_json report_data(const ReportRequest& request, const std::vector<CompareRow>& rows,
                                   const std::vector<CompareOutcome>& outcomes);

}  // namespace consist::launch
