// The table [ssh] of the cluster's file.
#pragma once

#include <string>
#include <vector>

#include "launch/cli/command_line.h"
#include "launch/cluster/settings.h"

namespace consist::launch {

struct SshHost {
  std::string name;  ///< as ssh takes it: "node07", "me@node07"
  std::string port;  ///< empty: as ssh's configuration has it
  std::string text() const { return port.empty() ? name : name + ":" + port; }
};

struct SshSettings : ClusterSettings {
  std::vector<SshHost> hosts;
  std::vector<std::string> options;  ///< more options of ssh: "-J", "gate"
  std::string gpus;                  ///< "0,1,2,3": of each host, those that its ranks see; empty: all
  std::string master;                ///< the first host's address for the others; empty: as ssh's configuration has it
  int port = 0;                      ///< where the launcher of the first host listens; 0: another one for each job
  std::string working_folder;        ///< of ranks; empty: where the command is given

  const SshHost& host(int node) const { return hosts[static_cast<std::size_t>(node)]; }
};

/// Throws as ClusterTable::read().
SshSettings read_ssh_settings(const CommandLine& line);

/// ssh's words to run a command on a host: nothing is asked at the terminal, and a host that does not answer is known within
/// seconds, one that is lost within a minute.
std::vector<std::string> ssh_words(const SshSettings& settings, const SshHost& host, const std::string& command);

}  // namespace consist::launch
