// Jobs that were given to a cluster, followed until they have ended.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "launch/cluster/train_job.h"

namespace consist::launch {

/// The end of a job.
struct JobEnd {
  int status = 0;      ///< as the launcher of one machine returns it: that of the rank that failed first by itself
  std::string reason;  ///< a sentence about an end that is none of the run's own; empty if it ended by itself
};

/// Takers of what a job says; all are called by ClusterJobs::look().
struct JobListener {
  std::function<void(const std::string&line)> output, errors;
  std::function<void(const std::string& text)> state;  ///< "waits: Resources", "runs on node[1-4]"
  std::function<void(const JobEnd& end)> ended;
};

/// THREADS: one at a time.
class ClusterJobs {
 public:
  ClusterJobs() = default;
  ClusterJobs(const ClusterJobs&) = delete;
  ClusterJobs& operator=(const ClusterJobs&) = delete;
  virtual ~ClusterJobs() = default;

  /// Submits a job that was prepared. Returns its name, for messages. Throws UsageError where the cluster takes no such job,
  /// SystemError where it does not answer.
  virtual std::string submit(const TrainJob& job, JobListener listener) = 0;
  /// Passes on what the jobs have said and how those that are over have ended. False if none is left. Returns soon; ask again
  /// after pause_between_looks.
  virtual bool look() = 0;
  /// The first call asks the ranks for an orderly end, as a signal does on one machine, and ends jobs that have not begun. A
  /// later one, and the first one after a while, ends them.
  virtual void stop() = 0;
  virtual std::size_t open() const noexcept = 0;
};

/// Between two calls of ClusterJobs::look().
inline constexpr std::chrono::milliseconds pause_between_looks{200};

}  // namespace consist::launch
