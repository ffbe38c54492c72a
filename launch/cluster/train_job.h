// A run of training as a job: its configuration, its batch script, its archive.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/plugin/host.h"
#include "launch/cluster/batch_script.h"
#include "launch/cluster/cluster_file.h"

namespace consist::launch {

struct TrainJob {
  BatchJob batch;
  std::string script;        ///< text of job.sbatch
  std::string config;        ///< text of run.toml
  std::string archive;       ///< where the run writes it; empty: none
  std::string archive_here;  ///< where it is wanted; empty: where it is written
  bool goes_on = false;      ///< in the archive that is there (--resume)
};

/// A run of training that is to be a job.
struct TrainRequest {
  std::string kind;  ///< of the command, "train", after which its folders are named: "train-7"
  RunConfig config;
  std::vector<std::string> plugins;     ///< the paths of --plugin
  std::vector<std::string> words = {};  ///< more words of the command line
  int ahead = 0;                        ///< jobs that are to be made before it
};

/// The job as it would be submitted, in a new folder within the cluster's. Makes nothing. Throws UsageError for ranks that do not
/// fill nodes, SystemError if the folder cannot be read.
TrainJob plan_train_job(const SlurmSettings& settings, const TrainRequest& request, PluginHost& host);

/// The same, with its folder and the files in it, a new token among them. Throws SystemError, too, if they cannot be written.
TrainJob make_train_job(const SlurmSettings& settings, const TrainRequest& request, PluginHost& host);

/// Removes the folder of a job that Slurm has refused.
void remove_train_job(const TrainJob& job) noexcept;

/// Copies the archive to where it is wanted, if the run has written one. Returns where it is; empty if there is none.
/// Throws SystemError.
std::string bring_archive(const TrainJob& job);

/// The job as --dry-run prints it.
std::string dry_run_text(const TrainJob& job);

}  // namespace consist::launch
