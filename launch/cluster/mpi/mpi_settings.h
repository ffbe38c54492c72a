// The table [mpi] of the cluster's file.
#pragma once

#include <string>
#include <vector>

#include "launch/cli/command_line.h"
#include "launch/cluster/settings.h"

namespace consist::launch {

struct MpiSettings : ClusterSettings {
  std::vector<std::string> hosts;    ///< the first one has rank 0
  std::vector<std::string> options;  ///< more options of mpirun
};

/// Throws as ClusterTable::read().
MpiSettings read_mpi_settings(const CommandLine& line);

}  // namespace consist::launch
