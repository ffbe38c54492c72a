// Results of a run that is over.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "consist/device.h"
#include "consist/export.h"
#include "core/record/job_memory.h"
#include "core/record/processor_use.h"

namespace consist {

/// Rates are medians of the steady state (docs/metrics.md), 0 where no step was done.
struct RunResult {
  PlannedMemory planned;
  LargestBytes measured_peak;
  std::int64_t steps = 0;
  double tokens_per_second = 0, samples_per_second = 0;  ///< of all ranks

  double model_flops = 0;                  ///< model FLOP/s per rank
  double peak_flops = 0;                   ///< dense peak of rank 0's device in the run's precision; 0: not known
  double bound_flops = 0;                  ///< measured FLOP/s of the model's largest linear on this device; 0: none
  std::string bound_problem;               ///< why there is none
  std::optional<ProcessorUse> processors;  ///< of rank 0's host during the steps; nothing where the system does not tell

  double final_loss = 0;
  double evaluation_loss = std::numeric_limits<double>::quiet_NaN();  ///< of the last evaluation; NaN if there was none
  std::int64_t evaluation_sequences = 0;                              ///< of the last evaluation, over all ranks

  // Seconds on rank 0. The total begins with the process and has more parts than those that are named here.
  double start_seconds = 0;  ///< from the start of the process to the first step
  double step_seconds = 0, data_seconds = 0, evaluation_seconds = 0, checkpoint_seconds = 0;  ///< sums over the run
  double total_seconds = 0;
  std::int64_t snapshots_left_out = 0;  ///< since the one before was still being written
  double ended = 0;  ///< when: seconds since 1970 (UTC); 0: not known

  /// Model FLOP/s over the peak; nothing where the peak is not known.
  std::optional<double> mfu() const;
};

/// Dense peak of `device` in `precision` (Precision::peak()): "fp32", "tf32", "bf16", "fp8". 0: not known.
CONSIST_API double peak_flops(const DeviceInfo& device, const std::string& precision);

/// The archive's /result; docs/archive.md has its keys. What is not known is null.
CONSIST_API std::string result_json(const RunResult& result);

}  // namespace consist
