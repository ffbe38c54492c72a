// consist bench, and consist bench collectives: a transport's rates, and whether its results are right.
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

using enum OptionKind;

constexpr RunOption bench_options[] = {
    valued("transport", text, "auto", "T", "auto: the fastest there is"),
    valued("ranks", integer, "2", "N", "ranks to start on this machine", "1..65536"),
    launch::device_option,
    valued("collectives", text, "", "LIST", "of all_reduce,all_gather,reduce_scatter,broadcast,send_receive; left out: all"),
    valued("min-bytes", bytes, "1Mi", "B", "the smallest size", "1.."),
    valued("max-bytes", bytes, "64Mi", "B", "the largest size", "1.."),
    valued("factor", integer, "2", "N", "from size to size", "2.."),
    valued("dtype", choice, "f32", "f32|bf16", "of the elements, which collectives add", "f32|bf16"),
    valued("seconds", real, "0.5", "S", "measured per line, about"),
    launch::timeout_option,
    launch::plugin_option,
};

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

launch::BenchSettings read_settings(const CommandLine& line) {
  launch::BenchSettings s;
  s.collectives = read_collectives(line.value("collectives"));
  s.dtype = *dtype_of(line.value("dtype"));
  s.min_bytes = line.integer("min-bytes");
  s.max_bytes = line.integer("max-bytes");
  s.factor = line.integer("factor");
  s.seconds = line.real("seconds");
  if (s.max_bytes < s.min_bytes) {
    throw UsageError("--max-bytes is " + std::to_string(s.max_bytes) + ", less than --min-bytes, " + std::to_string(s.min_bytes));
  }
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

int bench_collectives(const CommandLine& line) {
  const launch::BenchSettings settings = read_settings(line);
  RunConfig config = launch::config_of(line);
  PluginHost host(line.texts("plugin"));
  launch::take_part_options(line, host, config);
  refuse_stray_options(config, host);
  return launch::run_on_ranks(line, config, host, [&](JoinedJob& job) { return run_rank(config, settings, host, job); });
}

int bench(const CommandLine& line) {
  if (line.operands.empty()) {
    std::fputs(help_of(bench_command).c_str(), stdout);
    return 2;
  }
  throw UsageError("consist bench has collectives and expect, not '" + line.operands.front() + "'; see consist bench --help");
}

}  // namespace

constinit const Command bench_command{
    .name = "bench",
    .summary = "time the collectives of a transport, or estimate what they should reach",
    .usage = "collectives|expect [OPTIONS]",
    .about =
        "collectives times the collectives of a transport between ranks, and checks the result of every size.\n"
        "expect estimates what a collective should reach on links of a known speed, and runs nothing.\n",
    .notes = "See consist bench collectives --help, and consist bench expect --help.\n",
    .example = "consist bench collectives --transport nvlink --device cuda --ranks 4 --max-bytes 1Gi --dtype bf16\n",
    .operand = "collectives|expect",
    .run = bench};

constinit const Command bench_collectives_command{
    .name = "bench collectives",
    .summary = "time the collectives of a transport, and check their results",
    .usage = "[--transport T] [OPTIONS] [--<part>.<option> VALUE]...",
    .about =
        "Times the collectives of a transport between ranks on this machine, or between those that a launcher has\n"
        "started, and checks the result of every size. Prints the columns of nccl-tests: bytes of the whole data,\n"
        "elements, time of a call, algbw = bytes / time, busbw = what each link carried, and the number of wrong\n"
        "elements; then the bandwidth and latency of links that fit the times. The first lines name the verified\n"
        "path of the bytes. Needs twice --max-bytes of memory per rank.\n",
    .own = bench_options,
    .notes =
        "Returns 1 if a result is wrong. To estimate what links of a known speed should reach: consist bench expect --help\n",
    .example = "consist bench collectives --transport nvlink --device cuda --ranks 4 --max-bytes 1Gi --dtype bf16\n",
    .takes = Takes::parts,
    .run = bench_collectives};

}  // namespace consist::commands
