// A job whose ranks are started by ssh.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/cluster/job_list.h"
#include "launch/cluster/ssh/ssh_connection.h"

namespace consist::launch {

/// Connects to all hosts, starts the ranks once all are ready, and follows them. Where one host is not ready, none starts any.
/// The end of this object, or of this process, ends what it has started.
class SshJob final : public FollowedJob {
 public:
  SshJob(const SshSettings& settings, const TrainJob& job, JobListener listener);

  bool look() override;
  void stop() override;

 private:
  using Clock = std::chrono::steady_clock;

  /// The end of a job whose ranks have not started; nothing while all are well.
  std::optional<JobEnd> end_of_start();
  std::string different_versions() const;
  void start();
  void note_ends();
  /// Asks launchers that still run for their end, or ends them.
  void signal(const char* name);
  JobEnd end() const;
  std::string hosts() const;

  const SshSettings& settings_;
  const TrainJob job_;
  const JobListener listener_;
  std::vector<std::unique_ptr<SshConnection>> hosts_;
  std::vector<bool> ended_;
  bool started_ = false;
  int stops_ = 0;
  Clock::time_point connect_until_, next_at_ = Clock::time_point::max();  // when those that are left are asked, then ended
  bool asked_ = false;
  int first_status_ = 0;  // of a launcher whose ranks have failed by themselves
  std::string lost_;
};

}  // namespace consist::launch
