// Open MPI's mpirun as a kind of cluster: hosts without a queue, with a folder that all of them see.
#pragma once

#include <memory>
#include <string>

#include "launch/cluster/mpi/mpi_settings.h"
#include "launch/cluster/shared_folder.h"

namespace consist::launch {

class MpiCluster final : public SharedFolderCluster {
 public:
  explicit MpiCluster(const CommandLine& line) : SharedFolderCluster("job.sh"), settings_(read_mpi_settings(line)) {}

  const ClusterSettings& settings() const noexcept override { return settings_; }
  std::string node_name(int node) const override { return settings_.hosts[static_cast<std::size_t>(node)]; }
  std::string script(const TrainJob& job) const override;
  std::unique_ptr<ClusterJobs> jobs() const override;

 private:
  const MpiSettings settings_;
};

}  // namespace consist::launch
