// The text that sbatch gets.
#pragma once

#include <string>

#include "launch/cluster/slurm/slurm_settings.h"
#include "launch/cluster/train_job.h"

namespace consist::launch {

inline constexpr const char* batch_script_file = "job.sbatch";  ///< in the job's folder

/// Throws UsageError for a number of ranks that does not fill nodes of ranks_per_node.
std::string batch_script(const SlurmSettings& settings, const TrainJob& job);

}  // namespace consist::launch
