// Commands that measure on all ranks of a job and do not train: their command line, the ranks, the group of all of them.
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "consist/device.h"
#include "consist/transport.h"
#include "core/config/run_config.h"
#include "core/job/environment.h"
#include "core/plugin/host.h"

namespace consist::launch {

struct JobCommand {
  std::vector<std::string> words;  ///< {"bench", "collectives"}
  const char* help = "";
  int ranks = 1;  ///< without --ranks
  /// The command's own, beside --help, --ranks, --device, --transport, --timeout and --plugin.
  boost::program_options::options_description options;
};

struct JobCommandLine {
  std::vector<std::string> arguments;  ///< as given
  boost::program_options::variables_map values;
  std::vector<std::string> rest;  ///< options of parts
  RunConfig config;               ///< ranks, device, transport and timeout; plugin_options after take_part_options()
  std::vector<std::string> plugin_paths;
  bool ranks_given = false;
};

/// Nothing if --help was asked for, which is printed then. Throws UsageError for unknown options and values that cannot be.
std::optional<JobCommandLine> read_command_line(const JobCommand& command, const std::vector<std::string>& arguments);

/// Reads the options of parts into the line's config. Throws UsageError for those that no plugin has, and for an unknown
/// transport.
void take_part_options(JobCommandLine& line, PluginHost& host);

/// Calls `run` as one rank of the job that the environment says, and returns what it does. Where the environment says none,
/// starts `--ranks` processes of the same command on this machine, and returns their status. `run` leaves the job. What it throws
/// ends the job on all ranks, with its message. Throws UsageError if --ranks differs from the environment's number, and as
/// join_job().
int run_on_ranks(const JobCommand& command, const JobCommandLine& line, PluginHost& host,
                 const std::function<int(JoinedJob&)>& run);

/// The run's device, open for this rank. Throws what making and opening it throw.
std::shared_ptr<Device> open_device(const RunConfig& config, PluginHost& host, const JoinedJob& job);

/// Collective over the job: the name of the transport that connects all its ranks as one group of devices of this kind:
/// --transport's, or what rank 0 chooses for `auto`. Throws UsageError where there is none, and as agree_on_transports().
std::string transport_of_all(const RunConfig& config, PluginHost& host, JoinedJob& job, const std::string& device_kind);

/// Collective over the job: connects all its ranks as one group. `name`: as GroupRequest's. Throws what Transport::connect
/// throws.
std::unique_ptr<Communicator> connect_all(Transport& transport, JoinedJob& job, std::string_view name,
                                          const std::string& device_kind);

}  // namespace consist::launch
