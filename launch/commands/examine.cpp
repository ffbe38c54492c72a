// consist examine: what one rank of a job sees and measures of its machine, for `consist doctor`, which starts it.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "consist/text.h"
#include "launch/commands/commands.h"
#include "launch/doctor/examination.h"
#include "launch/measure/short_figures.h"
#include "launch/start/job_command.h"

namespace consist::commands {
namespace {

using enum OptionKind;

constexpr RunOption examine_options[] = {
    valued("ranks", integer, "1", "N", "ranks to start on this machine", "1..65536"),
    launch::device_option,
    valued("transport", text, "auto", "T", "whose links are measured"),
    valued("machine", text, "", "M", "with which figures are compared"),
    a_switch("look", "the checks of each host"),
    a_switch("measure", "short measurements"),
    launch::timeout_option,
    launch::plugin_option,
};

void print_of_rank_0(const JoinedJob& job, const nlohmann::ordered_json& event) {
  if (job.rank() != 0) return;
  std::fputs((event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n").c_str(), stdout);
  std::fflush(stdout);
}

int examine(const CommandLine& words) {
  static constexpr Command row{.name = "examine", .own = examine_options, .takes = Takes::parts};
  const CommandLine line = read_command_line(row, words.arguments);
  RunConfig config = launch::config_of(line);
  config.machine = line.value("machine");
  PluginHost host(line.texts("plugin"));
  launch::take_part_options(line, host, config);
  return launch::run_on_ranks(line, config, host, [&](JoinedJob& job) {
    if (line.flag("look")) {
      nlohmann::ordered_json hosts = nlohmann::ordered_json::array();
      for (const doctor::HostReport& seen : doctor::look_at_hosts(job, line.texts("plugin"))) hosts.push_back(json_of(seen));
      print_of_rank_0(job, {{doctor::hosts_event, std::move(hosts)}});
    }
    if (line.flag("measure")) {
      const launch::ShortFigures figures = launch::measure_shortly(config, host, job);
      print_of_rank_0(job, {{doctor::figures_event, json_of(figures)}});
    }
    job.leave(job.timeout());
    return 0;
  });
}

}  // namespace

constinit const Command examine_command{.name = "examine", .takes = Takes::words, .run = examine};

}  // namespace consist::commands
