// A job that mpirun runs, followed until it has ended.
#pragma once

#include <chrono>

#include "launch/cluster/followed_process.h"
#include "launch/cluster/job_list.h"

namespace consist::launch {

/// The end of this object, or of this process, asks the ranks for their end.
class MpiJob final : public FollowedJob {
 public:
  MpiJob(const TrainJob& job, JobListener listener);

  bool look() override;
  void stop() override;

 private:
  using Clock = std::chrono::steady_clock;

  const std::string name_;
  const JobListener listener_;
  int stops_ = 0;
  Clock::time_point kill_at_ = Clock::time_point::max();
  FollowedProcess script_;
};

}  // namespace consist::launch
