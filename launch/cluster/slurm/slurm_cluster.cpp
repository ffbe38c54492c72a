#include "launch/cluster/slurm/slurm_cluster.h"

#include "consist/error.h"
#include "launch/cluster/slurm/batch_script.h"
#include "launch/cluster/slurm/slurm_jobs.h"

namespace consist::launch {

SlurmCluster::SlurmCluster(const CommandLine& line)
    : SharedFolderCluster(batch_script_file), settings_(read_slurm_settings(line)) {}

std::string SlurmCluster::script(const TrainJob& job) const {
  if (job.restarts)
    throw UsageError(
        "--max-restarts is for ranks that Consist's own launcher starts, and with --on slurm srun starts them; leave it out, and "
        "run the same command again with --resume after a failure");
  return batch_script(settings_, job);
}

std::unique_ptr<ClusterJobs> SlurmCluster::jobs() const {
  return std::make_unique<SlurmJobs>(settings_);
}

}  // namespace consist::launch
