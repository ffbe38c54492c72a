// Settings that the tables of all kinds of clusters have.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace consist::launch {

/// Texts are checked for what a job's script can hold.
struct ClusterSettings {
  std::string file;     ///< the cluster's file, for messages
  std::string folder;   ///< absolute; jobs have folders in it
  std::string consist;  ///< the executable, as nodes find it
  int nodes = 1;        ///< of a job whose --ranks is not given
  int ranks_per_node = 1;
  int least_nodes = 0;  ///< with which a job goes on when others are lost; 0: all
  int node_wait = 0;    ///< seconds that it waits before, for another one; 0: as `consist launch` does
  int max_jobs = 0;                                              ///< jobs of a comparison that run at once; 0: all
  std::vector<std::string> before;                               ///< lines of the shell in front of the ranks
  std::vector<std::pair<std::string, std::string>> environment;  ///< variables of the ranks, in the file's order

  int ranks() const noexcept { return nodes * ranks_per_node; }
};

/// A job's ranks on its nodes.
struct Division {
  int nodes = 1;
  int ranks_per_node = 1;
};

/// Throws UsageError for ranks that do not fill nodes; `key` is the name of ranks_per_node in the file.
Division divide_ranks(const ClusterSettings& settings, int ranks, const char* key = "ranks-per-node");

/// Throws UsageError for more hosts than the file lists under `key`.
void check_hosts(const ClusterSettings& settings, const Division& division, int ranks, const char* key);

}  // namespace consist::launch
