// consist bench collectives: a transport's rates, and whether its results are right.
#include <algorithm>
#include <cstdio>
#include <sstream>

#include "consist/error.h"
#include "consist/options.h"
#include "consist/text.h"
#include "core/plan/parts.h"
#include "launch/commands/commands.h"
#include "launch/measure/bench_collectives.h"
#include "launch/start/job_command.h"

namespace consist::commands {
namespace {

namespace po = boost::program_options;

constexpr const char* help =
    "usage: consist bench collectives [--transport T] [OPTIONS] [--<part>.<option> VALUE]...   (defaults in brackets)\n\n"
    "Times the collectives of a transport between ranks on this machine, or between those that a launcher has\n"
    "started, and checks the result of every size. Prints the columns of nccl-tests: bytes of the whole data,\n"
    "elements, time of a call, algbw = bytes / time, busbw = what each link carried, and the number of wrong\n"
    "elements; then the bandwidth and latency of links that fit the times. The first lines name the verified\n"
    "path of the bytes. Needs twice --max-bytes of memory per rank.\n\n"
    "  --transport T [auto: the fastest there is]\n"
    "  --ranks N [2]         --device D [auto: the fastest]\n"
    "  --collectives LIST          of all_reduce,all_gather,reduce_scatter,broadcast,send_receive [all]\n"
    "  --min-bytes B [1Mi]         --max-bytes B [64Mi]  --factor N [2]      sizes\n"
    "  --dtype f32|bf16 [f32]      --seconds S [0.5]     measured per line, about\n"
    "  --timeout SECONDS [60]      longest wait for another rank\n"
    "  --plugin PATH               also look for plugins in this file or folder; may be repeated\n\n"
    "Returns 1 if a result is wrong. To estimate what links of a known speed should reach: consist bench expect --help\n"
    "example: consist bench collectives --transport nvlink --device cuda --ranks 4 --max-bytes 1Gi --dtype bf16\n";

po::options_description own_options() {
  po::options_description own;
  own.add_options()("collectives", po::value<std::string>()->default_value(""))(
      "min-bytes", po::value<std::string>()->default_value("1Mi"))("max-bytes", po::value<std::string>()->default_value("64Mi"))(
      "factor", po::value<std::int64_t>()->default_value(2))("dtype", po::value<std::string>()->default_value("f32"))(
      "seconds", po::value<double>()->default_value(0.5, "0.5"));
  return own;
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

launch::BenchSettings read_settings(const po::variables_map& values) {
  launch::BenchSettings s;
  s.collectives = read_collectives(values["collectives"].as<std::string>());
  const std::string dtype = values["dtype"].as<std::string>();
  if (dtype != "f32" && dtype != "bf16") throw UsageError("--dtype is '" + dtype + "'; collectives add f32 and bf16");
  s.dtype = *dtype_of(dtype);
  s.min_bytes = parse_bytes(values["min-bytes"].as<std::string>());
  s.max_bytes = parse_bytes(values["max-bytes"].as<std::string>());
  s.factor = values["factor"].as<std::int64_t>();
  s.seconds = values["seconds"].as<double>();
  if (s.min_bytes < 1) throw UsageError("--min-bytes is " + std::to_string(s.min_bytes) + "; it must be at least 1");
  if (s.max_bytes < s.min_bytes) {
    throw UsageError("--max-bytes is " + std::to_string(s.max_bytes) + ", less than --min-bytes, " + std::to_string(s.min_bytes));
  }
  if (s.factor < 2) throw UsageError("--factor is " + std::to_string(s.factor) + "; it must be at least 2");
  if (!(s.seconds > 0)) throw UsageError("--seconds must be above 0");
  return s;
}

/// Options for parts that have no say here would be ignored silently; they are mistakes.
void refuse_stray_options(const RunConfig& config, PluginHost& host) {
  for (const auto& [owner, given] : config.plugin_options) {
    const bool device = config.device == "auto" ? host.has("device", owner) : owner == config.device;
    const bool transport = config.transport == automatic_transport ? host.has("transport", owner) : owner == config.transport;
    if (!transport && !device) {
      throw UsageError("--" + owner + "." + given.begin()->first + " is given, but '" + owner +
                       "' is neither the transport nor the device");
    }
  }
}

int run_rank(const RunConfig& config, const launch::BenchSettings& settings, PluginHost& host, JoinedJob& job) {
  const std::shared_ptr<Device> device = launch::open_device(config, host, job);
  const DeviceInfo info = device->info();
  const std::string name = launch::transport_of_all(config, host, job, info.kind);
  const std::shared_ptr<Transport> transport = make_transport(name, config, host, info.kind);
  const std::unique_ptr<Communicator> communicator = launch::connect_all(*transport, job, "bench.0", info.kind);
  if (job.rank() == 0) {
    std::printf("# transport %s, %d ranks, device %s (%s)\n# path: %s\n", printable(name).c_str(), job.size(), info.kind.c_str(),
                printable(info.name).c_str(), printable(communicator->verified_path()).c_str());
  }
  const std::int64_t wrong = launch::bench_collectives(job, *device, *communicator, settings);
  job.leave(job.timeout());
  return wrong == 0 ? 0 : 1;
}

int bench_collectives(const Arguments& arguments) {
  const launch::JobCommand command{{"bench", "collectives"}, help, 2, own_options()};
  std::optional<launch::JobCommandLine> line = launch::read_command_line(command, arguments);
  if (!line) return 0;
  const launch::BenchSettings settings = read_settings(line->values);
  PluginHost host(line->plugin_paths);
  launch::take_part_options(*line, host);
  refuse_stray_options(line->config, host);
  return launch::run_on_ranks(command, *line, host, [&](JoinedJob& job) { return run_rank(line->config, settings, host, job); });
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
