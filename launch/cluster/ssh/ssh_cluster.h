// Hosts that ssh reaches as a kind of cluster: no queue, no shared folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/cluster/cluster.h"
#include "launch/cluster/ssh/ssh_settings.h"

namespace consist::launch {

class SshCluster final : public Cluster {
 public:
  explicit SshCluster(const CommandLine& line) : settings_(read_ssh_settings(line)) {}

  const ClusterSettings& settings() const noexcept override { return settings_; }
  std::string node_name(int node) const override { return settings_.host(node).text(); }
  std::string next_name(const std::string& kind, int ahead) const override;
  bool shares_folder() const noexcept override { return false; }
  std::string script(const TrainJob& job) const override;
  std::string dry_run_text(const TrainJob& job) const override;
  /// Copies the archive that is to go on to the host with rank 0.
  bool prepare(const TrainJob& job) const override;
  void discard(const TrainJob& job) const noexcept override;
  std::string fetch(const TrainJob& job) const override;
  std::unique_ptr<ClusterJobs> jobs() const override;

 private:
  /// The first host's address for the others, with a port of the job's.
  std::string master(const TrainJob& job) const;
  /// A command on the first host whose input or output is a file here: "<" or ">" says which.
  int copy(const char* direction, const std::string& file, const std::string& command, std::string& complaint) const;

  const SshSettings settings_;
};

}  // namespace consist::launch
