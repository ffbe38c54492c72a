// The table [slurm] of the cluster's file.
#pragma once

#include <string>
#include <vector>

#include "launch/cli/command_line.h"
#include "launch/cluster/settings.h"

namespace consist::launch {

struct SlurmSettings : ClusterSettings {
  std::string partition;  ///< empty, here and below: Slurm's default
  std::string account;
  std::string time;                ///< limit of a job, as sbatch takes it
  std::string image;               ///< container image, for clusters that have pyxis
  int gpus_per_node = 0;           ///< 0: none are asked for
  int cpus_per_rank = 0;           ///< 0: Slurm's default
  bool exclusive = true;           ///< no other job on the nodes
  std::vector<std::string> lines;  ///< more options of sbatch: "--constraint=a100"
};

/// Throws as ClusterTable::read().
SlurmSettings read_slurm_settings(const CommandLine& line);

}  // namespace consist::launch
