// Jobs that are followed one by one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/cluster/jobs.h"

namespace consist::launch {

/// A job that was submitted.
class FollowedJob {
 public:
  FollowedJob() = default;
  FollowedJob(const FollowedJob&) = delete;
  FollowedJob& operator=(const FollowedJob&) = delete;
  virtual ~FollowedJob() = default;

  /// As ClusterJobs::look(): false once the job has ended, which its listener has been told.
  virtual bool look() = 0;
  virtual void stop() = 0;
};

class JobList final : public ClusterJobs {
 public:
  /// Submits a job; throws as ClusterJobs::submit().
  using Submit = std::function<std::unique_ptr<FollowedJob>(const TrainJob& job, JobListener listener)>;

  explicit JobList(Submit submit) : submit_(std::move(submit)) {}

  std::string submit(const TrainJob& job, JobListener listener) override {
    jobs_.push_back(submit_(job, std::move(listener)));
    return job.name;
  }
  bool look() override {
    for (std::size_t i = 0; i < jobs_.size();) {  // a listener may submit another one
      if (jobs_[i]->look()) {
        ++i;
      } else {
        jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return !jobs_.empty();
  }
  void stop() override {
    for (const std::unique_ptr<FollowedJob>& job : jobs_) job->stop();
  }
  std::size_t open() const noexcept override { return jobs_.size(); }

 private:
  const Submit submit_;
  std::vector<std::unique_ptr<FollowedJob>> jobs_;
};

}  // namespace consist::launch
