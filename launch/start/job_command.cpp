#include "launch/start/job_command.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "consist/error.h"
#include "core/plan/parts.h"
#include "core/plan/transports.h"
#include "launch/cli/command_line_style.h"
#include "launch/cli/plugin_options.h"
#include "launch/cli/run_options.h"
#include "launch/start/launcher.h"

namespace consist::launch {
namespace {

namespace po = boost::program_options;

po::options_description all_options(const JobCommand& command) {
  po::options_description all;
  all.add(command.options);
  all.add_options()("help", "this text")("ranks", po::value<int>()->default_value(command.ranks))(
      "device", po::value<std::string>()->default_value("auto"))(
      "transport", po::value<std::string>()->default_value(automatic_transport))("timeout", po::value<int>()->default_value(60))(
      "plugin", po::value<std::vector<std::string>>()->composing());
  return all;
}

std::string text_of(const JobCommand& command) {
  std::string text = "consist";
  for (const std::string& word : command.words) text += " " + word;
  return text;
}

int at_least_one(const po::variables_map& values, const char* option) {
  const int given = values[option].as<int>();
  if (given < 1) throw UsageError("--" + std::string(option) + " is " + std::to_string(given) + "; it must be at least 1");
  return given;
}

}  // namespace

std::optional<JobCommandLine> read_command_line(const JobCommand& command, const std::vector<std::string>& arguments) {
  JobCommandLine line;
  line.arguments = arguments;
  try {
    const po::options_description known = all_options(command);
    const po::parsed_options parsed =
        po::command_line_parser(arguments).options(known).style(command_line_style).allow_unregistered().run();
    po::store(parsed, line.values);
    po::notify(line.values);
    line.rest = po::collect_unrecognized(parsed.options, po::include_positional);
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + " (see " + text_of(command) + " --help)");
  }
  if (line.values.count("help") != 0) {
    std::fputs(command.help, stdout);
    return std::nullopt;
  }
  line.config.ranks = at_least_one(line.values, "ranks");
  line.config.timeout_seconds = at_least_one(line.values, "timeout");
  line.config.device = line.values["device"].as<std::string>();
  line.config.transport = line.values["transport"].as<std::string>();
  line.ranks_given = !line.values["ranks"].defaulted();
  if (line.values.count("plugin") != 0) line.plugin_paths = line.values["plugin"].as<std::vector<std::string>>();
  return line;
}

void take_part_options(JobCommandLine& line, PluginHost& host) {
  line.config.plugin_options = read_plugin_options(line.rest, host);
  if (line.config.transport != automatic_transport) host.find("transport", line.config.transport);
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

int run_on_ranks(const JobCommand& command, const JobCommandLine& line, PluginHost& host,
                 const std::function<int(JoinedJob&)>& run) {
  JobAddress address = job_address_from_environment(process_environment());
  address.timeout = std::chrono::seconds(line.config.timeout_seconds);
  say_plugin_warnings(host, address);
  if (address.size == 1 && line.config.ranks > 1) {
    std::vector<std::string> again = command.words;
    again.insert(again.end(), line.arguments.begin(), line.arguments.end());
    return launch_local(line.config.ranks, again);
  }
  if (line.ranks_given && line.config.ranks != address.size) {
    throw UsageError("--ranks is " + std::to_string(line.config.ranks) + ", but the environment says that the job has " +
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
  Parts parts;
  add_device(parts, config, host);
  parts.device->open(job.local_rank(), job.local_size());
  return parts.device;
}

std::unique_ptr<Communicator> connect_all(Transport& transport, JoinedJob& job, std::string_view name,
                                          const std::string& device_kind) {
  GroupRequest group{std::string(name), {}, job.rank(), device_kind};
  for (int rank = 0; rank < job.size(); ++rank) group.ranks.push_back(rank);
  return transport.connect(job, group);
}

}  // namespace consist::launch
