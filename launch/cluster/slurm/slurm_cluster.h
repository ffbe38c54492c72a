// Slurm as a kind of cluster: jobs are batch scripts.
#pragma once

#include <memory>
#include <string>

#include "launch/cluster/shared_folder.h"
#include "launch/cluster/slurm/slurm_settings.h"

namespace consist::launch {

class SlurmCluster final : public SharedFolderCluster {
 public:
  explicit SlurmCluster(const CommandLine& line);

  const ClusterSettings& settings() const noexcept override { return settings_; }
  std::string script(const TrainJob& job) const override;
  std::unique_ptr<ClusterJobs> jobs() const override;

 private:
  const SlurmSettings settings_;
};

}  // namespace consist::launch
