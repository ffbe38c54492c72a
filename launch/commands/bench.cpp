// consist bench collectives: a transport's rates, and whether its results are right.
#include <algorithm>
#include <cstdio>
#include <sstream>

#include "consist/error.h"
#include "core/job/environment.h"
#include "core/plan/parts.h"
#include "launch/bench_collectives.h"
#include "launch/commands/commands.h"
#include "launch/launcher.h"
#include "launch/run_options.h"

namespace consist::commands {
namespace {

namespace po = boost::program_options;

constexpr const char* help =
    "usage: consist bench collectives --transport T [OPTIONS] [--<part>.<option> VALUE]...   (defaults in brackets)\n\n"
    "Times the collectives of a transport between ranks on this machine, or between those that a launcher has\n"
    "started, and checks the result of every size. Prints the columns of nccl-tests: bytes of the whole data,\n"
    "elements, time of a call, algbw = bytes / time, busbw = what each link carried, and the number of wrong\n"
    "elements; then the bandwidth and latency of links that fit the times. The first lines name the verified\n"
    "path of the bytes. Needs twice --max-bytes of memory per rank.\n\n"
    "  --transport T [socket]      --ranks N [2]         --device D [auto: the fastest]\n"
    "  --collectives LIST          of all_reduce,all_gather,reduce_scatter,broadcast,send_receive [all]\n"
    "  --min-bytes B [1Mi]         --max-bytes B [64Mi]  --factor N [2]      sizes\n"
    "  --dtype f32|bf16 [f32]      --seconds S [0.5]     measured per line, about\n"
    "  --timeout SECONDS [60]      longest wait for another rank\n"
    "  --plugin PATH               also look for plugins in this file or folder; may be repeated\n\n"
    "Returns 1 if a result is wrong. To estimate what links of a known speed should reach: consist bench expect --help\n"
    "example: consist bench collectives --transport nvlink --device cuda --ranks 4 --max-bytes 1Gi --dtype bf16\n";

struct Request {
  RunConfig config;  ///< transport, device, ranks, timeout, options of parts
  launch::BenchSettings settings;
  std::vector<std::string> plugin_paths;
  bool ranks_given = false;
};

po::options_description options() {
  po::options_description all;
  all.add_options()("help", "this text")("transport", po::value<std::string>()->default_value("socket"))(
      "ranks", po::value<int>()->default_value(2))("device", po::value<std::string>()->default_value("auto"))(
      "collectives", po::value<std::string>()->default_value(""))("min-bytes", po::value<std::string>()->default_value("1Mi"))(
      "max-bytes", po::value<std::string>()->default_value("64Mi"))("factor", po::value<std::int64_t>()->default_value(2))(
      "dtype", po::value<std::string>()->default_value("f32"))("seconds", po::value<double>()->default_value(0.5, "0.5"))(
      "timeout", po::value<int>()->default_value(60))("plugin", po::value<std::vector<std::string>>()->composing());
  return all;
}

std::vector<std::string> read_collectives(const std::string& list) {
  const std::vector<std::string>& known = launch::collective_names();
  if (list.empty()) return known;
  std::vector<std::string> chosen;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      std::string names;
      for (const std::string& name : known) names += " " + name;
      throw UsageError("--collectives names '" + word + "'; there are:" + names);
    }
    chosen.push_back(word);
  }
  return chosen;
}

void check(const Request& request) {
  const launch::BenchSettings& s = request.settings;
  if (request.config.ranks < 1)
    throw UsageError("--ranks is " + std::to_string(request.config.ranks) + "; it must be at least 1");
  if (request.config.timeout_seconds < 1)
    throw UsageError("--timeout is " + std::to_string(request.config.timeout_seconds) + "; it must be at least 1");
  if (s.min_bytes < 1) throw UsageError("--min-bytes is " + std::to_string(s.min_bytes) + "; it must be at least 1");
  if (s.max_bytes < s.min_bytes) {
    throw UsageError("--max-bytes is " + std::to_string(s.max_bytes) + ", less than --min-bytes, " + std::to_string(s.min_bytes));
  }
  if (s.factor < 2) throw UsageError("--factor is " + std::to_string(s.factor) + "; it must be at least 2");
  if (!(s.seconds > 0)) throw UsageError("--seconds must be above 0");
}

Request read_request(const po::variables_map& values) {
  Request request;
  request.config.transport = values["transport"].as<std::string>();
  request.config.device = values["device"].as<std::string>();
  request.config.ranks = values["ranks"].as<int>();
  request.config.timeout_seconds = values["timeout"].as<int>();
  request.ranks_given = !values["ranks"].defaulted();
  request.settings.collectives = read_collectives(values["collectives"].as<std::string>());
  const std::string dtype = values["dtype"].as<std::string>();
  if (dtype != "f32" && dtype != "bf16") throw UsageError("--dtype is '" + dtype + "'; collectives add f32 and bf16");
  request.settings.dtype = *dtype_of(dtype);
  request.settings.min_bytes = parse_bytes(values["min-bytes"].as<std::string>());
  request.settings.max_bytes = parse_bytes(values["max-bytes"].as<std::string>());
  request.settings.factor = values["factor"].as<std::int64_t>();
  request.settings.seconds = values["seconds"].as<double>();
  if (values.count("plugin") != 0) request.plugin_paths = values["plugin"].as<std::vector<std::string>>();
  check(request);
  return request;
}

/// Options for parts that have no say here would be ignored silently; they are mistakes.
void refuse_stray_options(const RunConfig& config, PluginHost& host) {
  for (const auto& [owner, given] : config.plugin_options) {
    const bool device = config.device == "auto" ? host.has("device", owner) : owner == config.device;
    if (owner != config.transport && !device) {
      throw UsageError("--" + owner + "." + given.begin()->first + " is given, but '" + owner +
                       "' is neither the transport nor the device");
    }
  }
}

int run_rank(const Request& request, PluginHost& host, JoinedJob& job) {
  const RunConfig& config = request.config;
  Parts parts;
  add_device(parts, config, host);
  parts.device->open(job.local_rank(), job.local_size());
  const DeviceInfo info = parts.device->info();
  const auto own = config.plugin_options.find(config.transport);
  const auto transport = host.make<Transport>(
      "transport", config.transport, own == config.plugin_options.end() ? std::map<std::string, std::string>{} : own->second);
  if (const std::string reason = transport->unavailable(info.kind); !reason.empty()) {
    throw UnavailableError("transport '" + config.transport + "' cannot serve device '" + info.kind + "': " + reason);
  }
  GroupRequest group{"bench.0", {}, job.rank(), info.kind};
  for (int rank = 0; rank < job.size(); ++rank) group.ranks.push_back(rank);
  const std::unique_ptr<Communicator> communicator = transport->connect(job, group);
  if (job.rank() == 0) {
    std::printf("# transport %s, %d ranks, device %s (%s)\n# path: %s\n", config.transport.c_str(), job.size(), info.kind.c_str(),
                info.name.c_str(), communicator->verified_path().c_str());
  }
  const std::int64_t wrong = launch::bench_collectives(job, *parts.device, *communicator, request.settings);
  job.leave(job.timeout());
  return wrong == 0 ? 0 : 1;
}

int bench_collectives(const Arguments& arguments) {
  po::variables_map values;
  std::vector<std::string> rest;
  try {
    const po::options_description known = options();
    const po::parsed_options parsed = po::command_line_parser(arguments)
                                          .options(known)
                                          .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing &
                                                 ~po::command_line_style::allow_short)
                                          .allow_unregistered()
                                          .run();
    po::store(parsed, values);
    po::notify(values);
    rest = po::collect_unrecognized(parsed.options, po::include_positional);
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + " (see consist bench collectives --help)");
  }
  if (values.count("help") != 0) {
    std::fputs(help, stdout);
    return 0;
  }
  Request request = read_request(values);
  PluginHost host(request.plugin_paths);
  request.config.plugin_options = read_plugin_options(rest, host);
  host.find("transport", request.config.transport);
  refuse_stray_options(request.config, host);

  JobAddress address = job_address_from_environment(process_environment());
  address.timeout = std::chrono::seconds(request.config.timeout_seconds);
  say_plugin_warnings(host, address);
  if (address.size == 1 && request.config.ranks > 1) {
    Arguments again{"bench", "collectives"};
    again.insert(again.end(), arguments.begin(), arguments.end());
    return launch::launch_local(request.config.ranks, again);
  }
  if (request.ranks_given && request.config.ranks != address.size) {
    throw UsageError("--ranks is " + std::to_string(request.config.ranks) + ", but the environment says that the job has " +
                     std::to_string(address.size) + " ranks; leave --ranks out");
  }
  const std::unique_ptr<JoinedJob> job = join_job(address);
  try {
    return run_rank(request, host, *job);
  } catch (const std::exception& error) {
    job->fail(error.what());
    throw;
  }
}

}  // namespace

int bench(const Arguments& arguments) {
  if (!arguments.empty() && arguments[0] == "collectives") return bench_collectives({arguments.begin() + 1, arguments.end()});
  if (!arguments.empty() && arguments[0] == "expect") return bench_expect({arguments.begin() + 1, arguments.end()});
  if (arguments.empty() || arguments[0] == "--help") {
    std::fputs(help, stdout);
    return arguments.empty() ? 2 : 0;
  }
  throw UsageError("consist bench has collectives and expect, not '" + arguments[0] + "'; see consist bench --help");
}

}  // namespace consist::commands
