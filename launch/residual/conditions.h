// The conditions of a run that its archive tells beside the times of its step: evidence for the causes of a residual.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/compare/outcome.h"
#include "launch/residual/step_parts.h"

namespace consist::launch {

struct Conditions {
  double data_seconds = 0;         ///< that rank 0 waited for its data before a step, mean of the steady state
  double clock = unknown;          ///< of rank 0's device, Hz, mean of the steady state
  double timed_clock = unknown;    ///< ... of the steps whose instructions were timed
  double machine_clock = unknown;  ///< ... of the machine's file: at which its times were measured
  std::vector<double> rank_work;   ///< seconds of a step in which the compute queue worked, by rank; empty: ranks differ in work
  double expert_load = unknown;    ///< the most chosen expert over the mean, mean over the steps
  std::string expert_axis;         ///< the axis that divides the experts; empty: none does
  /// Choices of the group's member with the most over the mean of its members, mean over layers and steps; and of rank 0.
  double expert_imbalance = unknown, own_experts = unknown;
  double other_work = 0;                     ///< share of rank 0's processors that others had
  std::map<std::string, std::string> paths;  ///< that transports were verified to take, by axis
  bool is_processor = false;                 ///< the device is the host's processor
};

/// Reads them from the archive that `step` is of. Throws DataError as ArchiveReader.
Conditions read_conditions(const StepParts& step, const RunOutcome& run);

}  // namespace consist::launch
