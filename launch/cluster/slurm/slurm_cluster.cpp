#include "launch/cluster/slurm/slurm_cluster.h"

#include "launch/cluster/slurm/batch_script.h"
#include "launch/cluster/slurm/slurm_jobs.h"

namespace consist::launch {

SlurmCluster::SlurmCluster(const CommandLine& line)
    : SharedFolderCluster(batch_script_file), settings_(read_slurm_settings(line)) {}

std::string SlurmCluster::script(const TrainJob& job) const {
  return batch_script(settings_, job);
}

std::unique_ptr<ClusterJobs> SlurmCluster::jobs() const {
  return std::make_unique<SlurmJobs>(settings_);
}

}  // namespace consist::launch
