#include "launch/cluster/ssh/ssh_jobs.h"

#include <utility>

#include "launch/cluster/ssh/ssh_job.h"

namespace consist::launch {

SshJobs::SshJobs(SshSettings settings) : settings_(std::move(settings)) {}
SshJobs::~SshJobs() = default;

std::string SshJobs::submit(const TrainJob& job, JobListener listener) {
  jobs_.push_back(std::make_unique<SshJob>(settings_, job, std::move(listener)));
  return job.name;
}

bool SshJobs::look() {
  for (std::size_t i = 0; i < jobs_.size();) {  // a listener may submit another one
    if (jobs_[i]->look()) {
      ++i;
    } else {
      jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return !jobs_.empty();
}

void SshJobs::stop() {
  for (const std::unique_ptr<SshJob>& job : jobs_) job->stop();
}

}  // namespace consist::launch
