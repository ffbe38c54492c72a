// consist show: a run on one screen, as its archive has it.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "consist/error.h"
#include "core/config/price.h"
#include "launch/cli/json_output.h"
#include "launch/commands/commands.h"
#include "launch/residual/residual.h"
#include "launch/residual/residual_text.h"
#include "launch/view/show/screen.h"
#include "launch/view/show/view_json.h"

namespace consist::commands {
namespace {

constexpr RunOption show_options[] = {
    a_switch("json", "the same as JSON (docs/watch.md), a list of several archives"),
    valued("price", OptionKind::text, "", "P", "per GPU and hour, or by machine: h200=2.5; without it what the run was given"),
};

/// Empty while the run goes on, and where its archive does not hold what it takes.
std::string line_of_residual(const launch::RunView& run) {
  if (run.status != "finished" || !run.evaluation.empty()) return {};
  return launch::residual_line(launch::residual_if_readable(run.path));
}

int show(const CommandLine& given) {
  if (given.operands.empty()) throw UsageError("no archive is named; consist show run.h5 shows a run (see consist show --help)");
  Price{given.text("price")};
  std::vector<launch::RunView> runs;
  for (const std::string& path : given.operands) {
    runs.push_back(launch::read_run(path));
    runs.back().residual = line_of_residual(runs.back());
  }
  if (given.flag("json")) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const launch::RunView& run : runs) list.push_back(launch::json_of(run, given.text("price")));
    const nlohmann::ordered_json& all = list.size() == 1 ? list.front() : list;
    launch::print_document(all);
    return 0;
  }
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const launch::ScreenSettings settings{
      .size = launch::screen_size(STDOUT_FILENO), .dots = launch::dots_of_terminal(), .now = now, .price = given.text("price")};
  for (const launch::RunView& run : runs) {
    for (const std::string& line : launch::screen_of(run, settings)) std::printf("%s\n", line.c_str());
  }
  return 0;
}

}  // namespace

constinit const Command show_command{
    .name = "show",
    .summary = "show a run on one screen: state, speed, memory, curves; also while it goes on",
    .usage = "ARCHIVE... [--json] [--price P]",
    .about =
        "Shows a run on one screen, while it goes on or afterwards: what it was (model, layout and the paths that transports\n"
        "were verified to take, precision, machine), its state, progress and time left, tokens/s (median, 10th to 90th\n"
        "percentile), share of the bound, memory, loss, evaluations, last events, and its curves. The screen is that of the\n"
        "terminal; elsewhere COLUMNS by LINES, 80 by 24 without them.\n",
    .own = show_options,
    .example = "consist show run.h5\n",
    .operand = "FILE",
    .run = show};

}  // namespace consist::commands
