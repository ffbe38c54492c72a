// Kubernetes as a kind of cluster: jobs are indexed Jobs.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "launch/cluster/cluster.h"
#include "launch/cluster/kubernetes/kubernetes_settings.h"

namespace consist::launch {

class KubernetesCluster final : public Cluster {
 public:
  explicit KubernetesCluster(const CommandLine& line) : settings_(read_kubernetes_settings(line)) {}

  const ClusterSettings& settings() const noexcept override { return settings_; }
  std::string next_name(const std::string& kind, int ahead) const override;
  bool shares_folder() const noexcept override { return false; }
  std::string script(const TrainJob& job) const override;
  std::string dry_run_text(const TrainJob& job) const override;
  bool prepare(const TrainJob&) const override { return true; }
  void discard(const TrainJob& job) const noexcept override;
  /// The job has brought it while its first pod was there.
  std::string fetch(const TrainJob& job) const override;
  std::unique_ptr<ClusterJobs> jobs() const override;

 private:
  const KubernetesSettings settings_;
  mutable std::set<std::string> brought_;  // names of jobs whose archive was
};

}  // namespace consist::launch
