// The rows of a comparison: the cross product of listed values, and what each run's archive says.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/config/run_config.h"

namespace consist::launch {

/// One make-up.
struct CompareRow {
  /// Option and value, of every option that is listed with several values, and the model; of deepspeed-set the key's last name.
  std::vector<std::pair<std::string, std::string>> varied;
  std::vector<std::string> arguments;  ///< for `consist train`, without the archive
  std::string label;                   ///< unique; also the archive's file name
};

/// What came out of it.
struct CompareOutcome {
  std::string status;  ///< "finished", "failed" (it ran and broke) or "refused" (illegal or unavailable)
  std::string reason;
  double tokens_per_second = 0;  ///< of all ranks, median of the steady state
  double low = 0, high = 0;      ///< 10th and 90th percentile
  double step_seconds = 0;
  double share_of_bound = 0;  ///< model FLOP/s per rank over the measured rate of the model's largest linear; NaN: unknown
  double planned_bytes = 0, measured_bytes = 0;
  double planned_host_bytes = 0;                                          ///< pinned by a rank, for what is offloaded
  double bytes_sent_per_step = std::numeric_limits<double>::quiet_NaN();  ///< by rank 0; NaN: unknown
  bool sent_is_counted = true;  ///< false: the transport does not count; what the program's collectives send
  double collectives = 0;       ///< per rank and step
  double final_loss = 0;
  std::vector<std::string> advice;  ///< what the run said about its own choices
};

/// Options that compare accepts as comma-separated lists. What has commas of its own is written with + here:
/// tp-sp=nvlink+ddp=socket, swiglu+rms_norm. The list of deepspeed-set stands behind its key: KEY=A,B.
extern const std::vector<std::string> listed_options;

/// Expands every listed option of `arguments` (those of train). Folders of --checkpoint and --export get the row's label as a
/// folder within, where there are several rows. Throws UsageError for an empty entry.
std::vector<CompareRow> expand_rows(const std::vector<std::string>& arguments);

/// Takes the options of the plugin `owner` ("--owner.option VALUE") out of a row's arguments.
void remove_options_of(const std::string& owner, CompareRow& row);

/// Reads a finished run. Throws DataError for an archive that cannot be read.
CompareOutcome read_outcome(const std::string& archive);

/// Whether `archive` holds a finished run of exactly this configuration.
bool is_done(const std::string& archive, const std::string& config_json);

}  // namespace consist::launch
