// The rows of a comparison before anything runs: expanded, checked, and predicted where nothing else is asked for.
#pragma once

#include <vector>

#include "core/config/run_config.h"
#include "core/plugin/host.h"
#include "launch/compare/outcome.h"
#include "launch/compare/request.h"
#include "launch/compare/rows.h"

namespace consist::launch {

struct CheckedRows {
  std::vector<CompareRow> rows;
  std::vector<CompareOutcome> outcomes;  ///< of each row: pending, or refused with the reason; with --predict the prediction
  std::vector<RunConfig> configs;        ///< by row, as it was asked for; its places are those of all repeats (config_in_place)
  std::vector<RunConfig> settled;        ///< by row: checked, batch settled
  bool misspelt = false;                 ///< a row names what does not exist
};

/// Expands the lists of `request`, leaves options of parts out that only other rows have, refuses what cannot run, and finds rows
/// that are the same program. Throws UsageError for lists that make no rows.
CheckedRows check_rows(const CompareRequest& request, PluginHost& host);

}  // namespace consist::launch
