// Jobs that were submitted to Slurm, followed until they have ended.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/cluster/jobs.h"
#include "launch/cluster/log_file.h"
#include "launch/cluster/slurm/slurm.h"
#include "launch/cluster/slurm/slurm_settings.h"

namespace consist::launch {

/// THREADS: one at a time.
class SlurmJobs final : public ClusterJobs {
 public:
  explicit SlurmJobs(SlurmSettings settings);
  ~SlurmJobs() override;

  std::string submit(const TrainJob& job, JobListener listener) override;
  bool look() override;
  void stop() override;
  std::size_t open() const noexcept override { return jobs_.size(); }

 private:
  struct Job;
  using Clock = std::chrono::steady_clock;

  void ask_slurm();
  void take_state(Job& job, const QueuedJob& queued);
  /// True if the job has ended, which its listener has been told.
  bool look_at(Job& job);
  JobEnd end_of(const Job& job, std::optional<int> status) const;
  void end_all();

  const SlurmSettings settings_;
  std::vector<std::unique_ptr<Job>> jobs_;
  Clock::time_point next_question_{}, last_answer_{};
  Clock::duration between_questions_{};
  int stops_ = 0;
  Clock::time_point end_all_at_{};
};

}  // namespace consist::launch
