// Jobs that were submitted to Slurm, followed until they have ended.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/cluster/cluster_file.h"
#include "launch/cluster/log_file.h"
#include "launch/cluster/slurm.h"

namespace consist::launch {

/// The end of a job.
struct JobEnd {
  int status = 0;      ///< as the launcher of one machine returns it: that of the rank that failed first by itself
  std::string reason;  ///< a sentence about an end that is none of the run's own; empty if it ended by itself
};

/// Takers of what a job says; all are called by SlurmJobs::look().
struct JobListener {
  std::function<void(const std::string&line)> output, errors;
  std::function<void(const std::string& text)> state;  ///< "waits: Resources", "runs on node[1-4]"
  std::function<void(const JobEnd& end)> ended;
};

/// THREADS: one at a time.
class SlurmJobs {
 public:
  explicit SlurmJobs(SlurmSettings settings);
  ~SlurmJobs();
  SlurmJobs(const SlurmJobs&) = delete;
  SlurmJobs& operator=(const SlurmJobs&) = delete;

  /// Submits the script in a job's folder. Returns its number. Throws as submit().
  std::string submit(const std::string& folder, JobListener listener);
  /// Passes on what the jobs have said and how those that are over have ended. False if none is left. Returns soon; ask again
  /// after pause_between_looks.
  bool look();
  /// The first call asks the ranks for an orderly end, as a signal does on one machine, and takes jobs that wait out of the
  /// queue. A later one, and the first one after a minute, ends them.
  void stop();

  std::size_t open() const noexcept { return jobs_.size(); }

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

/// Between two calls of SlurmJobs::look().
inline constexpr std::chrono::milliseconds pause_between_looks{200};

}  // namespace consist::launch
