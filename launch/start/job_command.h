// Commands that measure on all ranks of a job and do not train: their command line, the ranks, the group of all of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "consist/device.h"
#include "consist/transport.h"
#include "core/config/run_config.h"
#include "core/job/environment.h"
#include "core/plugin/host.h"
#include "launch/cli/command_line.h"

namespace consist::launch {

/// Options of such a command, beside --ranks.
inline constexpr RunOption device_option = valued("device", OptionKind::text, "auto", "D", "auto: the fastest there is");
inline constexpr RunOption timeout_option =
    valued("timeout", OptionKind::integer, "60", "SECONDS", "longest wait for another rank", "1..1000000000");
inline constexpr RunOption plugin_option =
    repeated(valued("plugin", OptionKind::text, "", "PATH", "also look for plugins in this file or folder; may be repeated"));

/// The configuration that such a command line states: ranks, device, transport and timeout.
RunConfig config_of(const CommandLine& line);

/// Reads the options of parts into the config. Throws UsageError for those that no plugin has, and for an unknown transport.
void take_part_options(const CommandLine& line, PluginHost& host, RunConfig& config);

/// Calls `run` as one rank of the job that the environment says, and returns what it does. Where the environment says none,
/// starts `--ranks` processes of the same command on this machine, and returns their status. `run` leaves the job. What it throws
/// ends the job on all ranks, with its message. Throws UsageError if --ranks differs from the environment's number, and as
/// join_job().
int run_on_ranks(const CommandLine& line, const RunConfig& config, PluginHost& host, const std::function<int(JoinedJob&)>& run);

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
