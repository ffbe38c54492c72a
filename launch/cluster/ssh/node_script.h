// The script that a host's shell runs for a job.
#pragma once

#include <string>

#include "launch/cluster/ssh/ssh_settings.h"
#include "launch/cluster/train_job.h"

namespace consist::launch {

/// Words with which the script begins a line that is for this program.
inline constexpr const char* host_is_ready = "consist-is-ready ";  ///< and the version
inline constexpr const char* host_refuses = "consist-refuses: ";   ///< and why

/// The script, whose first argument is the number of the host. It says that the host is ready, reads the token, the number of
/// lines of the configuration and these, starts `consist launch` for the host's ranks and ends with its status. Names of signals
/// that it reads then are sent to the launcher, SIGTERM at the end of what there is to read: the connection is the job's life.
/// `master` is the first host's address and port. Throws UsageError for ranks that do not fill hosts, or need more.
std::string node_script(const SshSettings& settings, const TrainJob& job, const std::string& master);

/// The text that the script reads before the ranks start.
std::string node_input(const std::string& token, const TrainJob& job);

}  // namespace consist::launch
