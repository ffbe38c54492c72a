#include "launch/start/job_command.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "consist/error.h"
#include "consist/text.h"
#include "core/base/split.h"
#include "core/plan/parts.h"
#include "core/plan/transports.h"
#include "launch/cli/plugin_options.h"
#include "launch/cli/run_options.h"
#include "launch/start/launcher.h"

namespace consist::launch {
RunConfig config_of(const CommandLine& line) {
  RunConfig config;
  config.ranks = static_cast<int>(line.integer("ranks"));
  config.timeout_seconds = static_cast<int>(line.integer("timeout"));
  config.device = line.value("device");
  config.transport = line.value("transport");
  return config;
}

void take_part_options(const CommandLine& line, PluginHost& host, RunConfig& config) {
  config.plugin_options = read_plugin_options(line.rest, host, config.notes);
  if (config.transport != automatic_transport) host.find("transport", config.transport);
}

std::string transport_of_all(const RunConfig& config, PluginHost& host, JoinedJob& job, const std::string& device_kind) {
  if (config.transport != automatic_transport) return config.transport;
  const bool several_hosts = job.local_size() < job.size();
  const AutomaticTransports automatic = agree_on_transports(job, config, host, device_kind);
  const std::string& name = automatic.names[several_hosts];
  if (name.empty())
    throw UsageError("--transport auto: there is no transport that connects devices of the kind '" + device_kind + "'; name one");
  return name;
}

int run_on_ranks(const CommandLine& line, const RunConfig& config, PluginHost& host, const std::function<int(JoinedJob&)>& run) {
  JobAddress address = job_address_from_environment(process_environment());
  address.timeout = std::chrono::seconds(config.timeout_seconds);
  say_plugin_warnings(host, address);
  for (const std::string& note : config.notes) {
    if (address.rank == 0 && address.joined_fd < 0) std::fprintf(stderr, "%s\n", printable(note).c_str());
  }
  if (address.size == 1 && config.ranks > 1) {
    std::vector<std::string> again;
    for (const std::string_view word : split(line.command->name, ' ')) again.emplace_back(word);
    again.insert(again.end(), line.arguments.begin(), line.arguments.end());
    return launch_local(config.ranks, again);
  }
  if (line.has("ranks") && config.ranks != address.size) {
    throw UsageError("--ranks is " + std::to_string(config.ranks) + ", but the environment says that the job has " +
                     std::to_string(address.size) + " ranks; leave --ranks out");
  }
  const std::unique_ptr<JoinedJob> job = join_job(address);
  try {
    return run(*job);
  } catch (const std::exception& error) {
    job->fail(error.what());
    throw;
  }
}

std::shared_ptr<Device> open_device(const RunConfig& config, PluginHost& host, const JoinedJob& job) {
  const std::shared_ptr<Device> device = make_device(config, host).device;
  device->open(job.local_rank(), job.local_size());
  return device;
}

std::unique_ptr<Communicator> connect_all(Transport& transport, JoinedJob& job, std::string_view name,
                                          const std::string& device_kind) {
  GroupRequest group{std::string(name), {}, job.rank(), device_kind};
  for (int rank = 0; rank < job.size(); ++rank) group.ranks.push_back(rank);
  return transport.connect(job, group);
}

}  // namespace consist::launch
