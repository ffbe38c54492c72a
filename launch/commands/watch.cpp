// consist watch: runs while they go on, redrawn on a terminal, as lines elsewhere.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "consist/error.h"
#include "core/config/price.h"
#include "launch/cli/exit_status.h"
#include "launch/commands/commands.h"
#include "launch/view/watch/frame.h"
#include "launch/view/watch/terminal.h"
#include "launch/view/watch/watched_runs.h"

namespace consist::commands {
namespace {

constexpr RunOption watch_options[] = {
    valued("interval", OptionKind::real, "", "SECONDS", "between two looks; left out: 1 on a terminal, 10 elsewhere",
           "0.1..86400"),
    valued("wait", OptionKind::real, "", "SECONDS",
           "for an archive that is not there yet, and for the next run in a folder; left out: 0, of "
           "folders 60",
           "0..1e9"),
    valued("price", OptionKind::text, "", "P", "per GPU and hour, or by machine: h200=2.5; without it what the run was given"),
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

launch::ScreenSettings settings_now(const std::string& price) {
  return {.size = launch::screen_size(STDOUT_FILENO),
          .dots = launch::dots_of_terminal(),
          .now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(),
          .price = price};
}

/// Draws until the runs have ended, the person quits (then false) or a signal comes.
bool draw(launch::WatchedRuns& runs, launch::WatchSignals& signals, double interval, const std::string& price) {
  launch::TerminalScreen terminal;
  launch::WatchState state;
  for (double next = seconds_now(); signals.asked_to_end() == 0;) {
    if (seconds_now() >= next) {
      next = seconds_now() + interval;
      runs.refresh(seconds_now());
      if (runs.ended(seconds_now())) return true;
    }
    terminal.draw(launch::frame_of(runs.runs(), runs.missing(), state, settings_now(price)));
    const std::string keys = signals.wait(std::max(0.0, next - seconds_now()), terminal.has_keys());
    if (!launch::take_keys(keys, runs.runs().size(), state)) return false;
  }
  return true;
}

/// Prints a line of each run that has changed, until all have ended or a signal comes.
void print(launch::WatchedRuns& runs, launch::WatchSignals& signals, double interval) {
  std::map<std::string, std::pair<std::int64_t, std::string>> told;  // by path: step and status
  bool waiting = false;
  while (signals.asked_to_end() == 0) {
    runs.refresh(seconds_now());
    const double now = settings_now("").now;
    for (const launch::RunView& run : runs.runs()) {
      const auto [before, is_new] = told.try_emplace(run.path);
      const std::pair news(run.done(), run.status);
      if (!is_new && before->second == news) continue;
      before->second = news;
      std::printf("%s\n", launch::line_of(launch::summary_line(run, now), 1000).c_str());
    }
    for (const std::string& name : runs.missing()) {
      if (!waiting) std::printf("%s: is not there yet\n", launch::line_of(name, 1000).c_str());
    }
    waiting = !runs.missing().empty();
    std::fflush(stdout);
    if (runs.ended(seconds_now())) return;
    signals.wait(interval, false);
  }
}

int watch(const CommandLine& given) {
  if (given.operands.empty())
    throw UsageError("no archive is named; consist watch run.h5 watches a run (see consist watch --help)");
  const std::string price = given.text("price");
  Price{price};
  const char* const kind = std::getenv("TERM");
  const bool draws = ::isatty(STDOUT_FILENO) == 1 && kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
  std::error_code ignored;
  const bool folder = std::any_of(given.operands.begin(), given.operands.end(),
                                  [&](const std::string& name) { return std::filesystem::is_directory(name, ignored); });
  const auto number = [&](const char* option, double otherwise) { return given.has(option) ? given.real(option) : otherwise; };
  const double interval = number("interval", draws ? 1 : 10);

  launch::WatchSignals signals;
  launch::WatchedRuns runs(given.operands, number("wait", folder ? 60 : 0), seconds_now());
  runs.refresh(seconds_now());
  if (!draws) {
    print(runs, signals, interval);
  } else if (!runs.ended(seconds_now()) && !draw(runs, signals, interval, price)) {
    return 0;
  }
  if (signals.asked_to_end() != 0) return 128 + signals.asked_to_end();
  if (draws) {
    const launch::ScreenSettings settings = settings_now(price);
    for (const launch::RunView& run : runs.runs()) {
      const auto lines = runs.runs().size() == 1
                             ? launch::screen_of(run, settings)
                             : std::vector{launch::line_of(launch::summary_line(run, settings.now), settings.size.columns)};
      for (const std::string& line : lines) std::printf("%s\n", line.c_str());
    }
  }
  return std::any_of(runs.runs().begin(), runs.runs().end(),
                     [](const launch::RunView& run) { return run.status == "failed" || run.status == "cut off"; })
             ? exit_failed
             : 0;
}

}  // namespace

constinit const Command watch_command{
    .name = "watch",
    .summary = "show runs while they go on",
    .usage = "ARCHIVE|FOLDER... [--interval SECONDS] [--wait SECONDS] [--price P]",
    .about =
        "Shows runs while they go on, as consist show does, and ends when they have ended. Of several archives, or the\n"
        "archives in a folder, it shows a table and the curve of one of them. Without a terminal it prints a line for each\n"
        "run whenever there is news.\n",
    .own = watch_options,
    .notes =
        "Keys: q quits, up and down choose a run, return shows all of it.\n"
        "Returns 0 if all runs finished or were stopped, 1 if one failed or was cut off.\n",
    .example = "consist watch run.h5\n",
    .operand = "FILE",
    .run = watch};

}  // namespace consist::commands
