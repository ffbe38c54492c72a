// A kind of cluster, as its table of the cluster's file describes it.
#pragma once

#include <memory>
#include <string>

#include "launch/cli/command_line.h"
#include "launch/cluster/jobs.h"
#include "launch/cluster/settings.h"
#include "launch/cluster/train_job.h"

namespace consist::launch {

/// The way of a job: named and planned (plan_train_job()), prepared, submitted and followed (jobs()), fetched.
class Cluster {
 public:
  Cluster() = default;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  virtual ~Cluster() = default;

  virtual const ClusterSettings& settings() const noexcept = 0;
  /// A node of a job as the cluster's file names it; empty where the cluster chooses nodes, which then name themselves.
  virtual std::string node_name(int /*node*/) const { return ""; }
  /// The name of the job that would be made now with `ahead` others before it: "train-7". Throws SystemError.
  virtual std::string next_name(const std::string& kind, int ahead) const = 0;
  /// True if this machine sees the folder of a job as its nodes do, so that an archive may be written where it is wanted.
  virtual bool shares_folder() const noexcept = 0;
  /// The text of the script that starts the ranks. Throws UsageError for a number of ranks that does not fill nodes.
  virtual std::string script(const TrainJob& job) const = 0;
  /// The job as --dry-run prints it.
  virtual std::string dry_run_text(const TrainJob& job) const = 0;

  /// Makes what a job needs before it is submitted; false if another command has just taken its name. Throws SystemError.
  virtual bool prepare(const TrainJob& job) const = 0;
  /// Takes back what prepare() has made, of a job that was refused.
  virtual void discard(const TrainJob& job) const noexcept = 0;
  /// Brings the archive to where it is wanted, if the run has written one. Returns where it is; empty if there is none. Throws
  /// SystemError.
  virtual std::string fetch(const TrainJob& job) const = 0;
  /// The cluster outlives them.
  virtual std::unique_ptr<ClusterJobs> jobs() const = 0;
};

/// The cluster of --on, which is none of "here", as its table describes it. Throws as ClusterTable::read().
std::unique_ptr<Cluster> make_cluster(const CommandLine& line);

/// True if the command is to run on a cluster. Throws UsageError for --cluster and --dry-run without --on.
bool is_on_cluster(const CommandLine& line);

}  // namespace consist::launch
