// The results of the runs of a comparison's row.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "consist/loss.h"
#include "consist/observer.h"
#include "core/record/processor_use.h"
#include "launch/measure/statistics.h"
#include "launch/predict/prediction.h"

namespace consist::launch {

inline constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// One run, as its archive says. Figures of rates and times are those of the steady state (docs/metrics.md).
struct RunOutcome {
  std::string status;  ///< "finished", "failed" (it ran and broke), "refused" (illegal or unavailable), "interrupted"
  std::string reason;  ///< may have several lines
  std::string archive;
  int repeat = 1;
  double tokens_per_second = 0;  ///< of all ranks, median of the steps
  double step_seconds = 0;
  double total_seconds = 0;  ///< from the start of the process to the last step
  double ended = unknown;    ///< seconds since 1970
  double share_of_bound = unknown;
  double bound_flops = unknown;
  std::string bound_problem;
  double planned_bytes = 0, measured_bytes = 0;
  int measured_rank = -1;                ///< the rank that took so much; -1: not told, or all ranks took as much
  double planned_host_bytes = 0;         ///< pinned by a rank, for what is offloaded
  double bytes_sent_per_step = unknown;  ///< by rank 0
  bool sent_is_counted = true;           ///< false: the transport does not count; what the program's collectives send
  double collectives = 0;                ///< per rank and step
  double final_loss = 0;
  std::string loss_unit = Loss::default_unit;  ///< printable
  std::vector<OwnMetricValue> metrics = {};  ///< final_metrics()
  double cost = unknown;                   ///< of a billion tokens, by --price
  double joules = unknown;                 ///< of a billion tokens, by the power of rank 0's device
  std::optional<ProcessorUse> processors;  ///< of rank 0's host during the steps
  double clock = unknown;                  ///< of rank 0's device, Hz, mean over the steps
  std::int64_t step_tokens = 0;            ///< that its last step trained on
  std::vector<std::string> advice;         ///< what the run said about its own choices
};

/// A row: its repeats, and what they say together.
struct CompareOutcome {
  /// As RunOutcome::status: "finished" once a repeat has; "pending": not run; "does not fit": the machine of compare --predict.
  std::string status = "pending";
  std::string reason;
  std::vector<RunOutcome> runs;  ///< that finished
  Interval speed;                ///< tokens/s over the repeats that count
  /// Why the speed cannot be held against another's: other work on the machine. Empty if repeats without it are enough.
  std::string disturbance;
  std::int64_t step_tokens = 0;     ///< that a step trains on; 0: not told
  std::size_t same_program_as = 0;  ///< index of the row that was run for this one; its own: it was run itself

  /// compare --predict: what was simulated; `runs` is then one that says the same, and `speed` has no interval.
  std::optional<Prediction> prediction;
  double predicted_seconds = unknown;  ///< beside runs: of a step, simulated for the machine of the runs (predicted_seconds())

  bool finished() const { return status == "finished"; }
};

/// Reads a finished run. `price`: that of the archive's /config where it is empty. Throws DataError for an archive that cannot be
/// read.
RunOutcome read_outcome(const std::string& archive, const std::string& price = "");

/// The row whose one run this is: it has no interval.
CompareOutcome row_of(RunOutcome run);

/// Why a run's rate cannot be trusted: other processes or machines took its processors. Empty if they did not, or if that is not
/// known.
std::string disturbance_of(const RunOutcome& run);

/// Sets speeds and disturbances of rows that were measured on one machine from their `runs`: those that nothing disturbed count,
/// if they are at least two or all there are; otherwise all count, and the disturbance is named. How far speeds scatter is
/// estimated from all rows that nothing disturbed together (pooled_intervals()).
void settle(std::span<CompareOutcome> outcomes);

/// The units of the losses of the rows that finished, each once.
std::vector<std::string> loss_units(std::span<const CompareOutcome> outcomes);

/// The unit of them all; empty: they have several.
std::string common_loss_unit(std::span<const CompareOutcome> outcomes);

/// Runs that nothing is known to have disturbed.
int quiet_runs(const CompareOutcome& outcome);

/// The figures that are shown for a row beside its speed: means of times, shares and energy, the largest memory.
RunOutcome figures_of(const CompareOutcome& outcome);

}  // namespace consist::launch
