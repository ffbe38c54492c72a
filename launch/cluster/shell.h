// Pieces of the shell scripts that start ranks on nodes.
#pragma once

#include <string>
#include <vector>

#include "launch/cluster/settings.h"

namespace consist::launch {

/// A word as a shell reads it back; in quotes where it needs them.
std::string shell_word(const std::string& word);
/// Words as a command, each behind a blank.
std::string shell_words(const std::vector<std::string>& words);

/// Lines that make the environment of ranks: nothing of another job's, `of_job`, the variables of the cluster's file, its lines
/// before the ranks, and the limit of pinned memory.
std::string environment_lines(const ClusterSettings& settings, const std::string& of_job = "");

/// Places in a command that starts a node's ranks, each as a shell is to read it.
struct LaunchPlaces {
  std::string node;    ///< its number: "\"$SLURM_NODEID\""
  std::string master;  ///< where the launcher of node 0 listens
  std::string config;  ///< run.toml
};

/// `consist launch` of one node's ranks, without a line's end.
std::string launch_command(const ClusterSettings& settings, const Division& division, const LaunchPlaces& places,
                           const std::vector<std::string>& words);

}  // namespace consist::launch
