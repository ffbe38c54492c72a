// Pieces of the shell scripts that start ranks on nodes.
#pragma once

#include <string>
#include <vector>

#include "launch/cluster/settings.h"
#include "launch/cluster/train_job.h"

namespace consist::launch {

/// A word as a shell reads it back; in quotes where it needs them.
std::string shell_word(const std::string& word);
/// Words as a command, each behind a blank.
std::string shell_words(const std::vector<std::string>& words);

/// Lines that take another job's variables out of the environment.
std::string forget_lines();
/// Lines that make the environment of ranks: `of_job`, the variables of the cluster's file, its lines before the ranks, and the
/// limit of pinned memory.
std::string environment_lines(const ClusterSettings& settings, const std::string& of_job = "");

/// Lines that run a command, whose status is then in $status. Signals that are named on descriptor 3 are sent to it, `end` at
/// the end of what there is to read: the process with the other end is the command's life. `before_end`: commands, each with its
/// semicolon, that are run then before.
std::string watched_lines(const std::string& command, const std::string& end = "TERM", const std::string& before_end = "");
/// True if the job goes on without some of its nodes when these are lost.
bool varies(const ClusterSettings& settings, const Division& division, const TrainJob& job);

/// Places in a command that starts a node's ranks, each as a shell is to read it.
struct LaunchPlaces {
  std::string node;    ///< its number: "\"$SLURM_NODEID\""
  std::string master;  ///< where the launcher of node 0 listens
  std::string config;  ///< run.toml
};

/// A rank's command, behind the executable; `config` as a shell is to read it.
std::string rank_words(const TrainJob& job, const std::string& config);

/// `consist launch` of one node's ranks, without a line's end.
std::string launch_command(const ClusterSettings& settings, const Division& division, const LaunchPlaces& places,
                           const TrainJob& job);

/// Lines that run a command, whose status is then in $status. Of these signals to the shell ("TERM INT") it gets SIGTERM.
std::string trapped_lines(const std::string& command, const std::string& signals);

}  // namespace consist::launch
