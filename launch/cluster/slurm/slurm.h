// Slurm's commands: sbatch, squeue, scancel, sinfo. Each has a time limit; none needs Slurm's accounting.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/cluster/slurm/slurm_settings.h"

namespace consist::launch {

/// A job as squeue knows it.
struct QueuedJob {
  std::string state;   ///< "PENDING", "RUNNING", "NODE_FAIL"; empty: Slurm does not know the job (any more)
  std::string reason;  ///< why it waits or failed: "Resources"; empty: none
  std::string nodes;   ///< "node[1-4]"; empty before it has any

  bool is_pending() const noexcept;
  bool is_over() const noexcept;  ///< of a job that Slurm does not know, too
};

/// Submits a batch script. Returns the job's number. Throws UsageError with Slurm's words, and what there is instead where they
/// are about the partition, if Slurm refuses the job or is not here; SystemError if it does not answer.
std::string submit(const SlurmSettings& settings, const std::string& script);

/// The jobs with these numbers; nothing if Slurm does not answer, which may be a matter of moments.
std::optional<std::map<std::string, QueuedJob>> ask_queue(const std::vector<std::string>& jobs);

/// Sends a signal to the job's ranks, or ends the job if there is none. Returns Slurm's complaint; empty if there is none.
std::string cancel(const std::string& job, const std::string& signal = "");

/// "node3 (Not responding), node4 (...)": nodes of the list that are down; empty if there are none.
std::string nodes_down(const std::string& nodes);

}  // namespace consist::launch
