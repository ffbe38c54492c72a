// Jobs whose ranks are started by ssh, one connection to each host, followed until they have ended.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "launch/cluster/jobs.h"
#include "launch/cluster/ssh/ssh_settings.h"

namespace consist::launch {

class SshJob;

/// The end of this object, or of this process, ends what it has started.
class SshJobs final : public ClusterJobs {
 public:
  explicit SshJobs(SshSettings settings);
  ~SshJobs() override;

  std::string submit(const TrainJob& job, JobListener listener) override;
  bool look() override;
  void stop() override;
  std::size_t open() const noexcept override { return jobs_.size(); }

 private:
  const SshSettings settings_;
  std::vector<std::unique_ptr<SshJob>> jobs_;
};

}  // namespace consist::launch
