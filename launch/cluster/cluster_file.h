// The cluster's file, cluster.toml: where jobs go, and what each of them is given.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/cli/command_line.h"

namespace consist::launch {

/// The table [slurm]. Texts are checked for what the batch script can hold.
struct SlurmSettings {
  std::string file;       ///< the cluster's file, for messages
  std::string partition;  ///< empty, here and below: Slurm's default
  std::string account;
  std::string time;     ///< limit of a job, as sbatch takes it
  std::string folder;   ///< absolute; every node and this machine see it: scripts, logs and archives of jobs
  std::string consist;  ///< the executable, as nodes find it
  std::string image;    ///< container image, for clusters that have pyxis
  int nodes = 1;        ///< of a job whose --ranks is not given
  int ranks_per_node = 1;
  int gpus_per_node = 0;                                         ///< 0: none are asked for
  int cpus_per_rank = 0;                                         ///< 0: Slurm's default
  int max_jobs = 0;                                              ///< jobs of a comparison that are submitted at once; 0: all
  bool exclusive = true;                                         ///< no other job on the nodes
  std::vector<std::string> lines;                                ///< more options of sbatch: "--constraint=a100"
  std::vector<std::string> before;                               ///< lines of the shell in front of the ranks
  std::vector<std::pair<std::string, std::string>> environment;  ///< variables of the ranks, in the file's order

  int ranks() const noexcept { return nodes * ranks_per_node; }
};

/// Reads the file of --cluster, else ./cluster.toml, else ~/.config/consist/cluster.toml. Throws UsageError where there is none,
/// for a key or a value that it may not have and for a missing one, and as read_config_file().
SlurmSettings read_slurm_settings(const CommandLine& line);

/// True if the command is to run on a cluster. Throws UsageError for --cluster and --dry-run without --on.
bool is_on_cluster(const CommandLine& line);

}  // namespace consist::launch
