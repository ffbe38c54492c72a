// consist launch: a command of `consist` as several ranks on this machine.
#include <chrono>
#include <string>
#include <vector>

#include "consist/error.h"
#include "launch/commands/commands.h"
#include "launch/start/launcher.h"

namespace consist::commands {
namespace {

constexpr RunOption launch_options[] = {
    valued("nproc", OptionKind::integer, "", "N", "number of ranks", "1..65536"),
    a_switch("all-output", "show the standard output of all ranks"),
    valued("grace", OptionKind::integer, "60", "SECONDS", "after Ctrl-C: time for the ranks to end by themselves", "1.."),
};

/// Checks the command once, so that not every rank prints the same error.
void check(const std::vector<std::string>& command, int ranks) {
  const Command* const known = find_command(table(), command[0]);
  if (known == nullptr) throw UsageError("there is no command '" + command[0] + "' that could be launched; see consist --help");
  if (known == &train_command) check_train({command.begin() + 1, command.end()}, ranks);
}

int launch(const CommandLine& line) {
  if (line.operands.empty()) throw UsageError("consist launch has no command after --; see consist launch --help");
  if (!line.has("nproc")) throw UsageError("consist launch needs --nproc, the number of ranks");
  const auto ranks = static_cast<int>(line.integer("nproc"));
  launch::LaunchOptions options{.all_output = line.flag("all-output")};
  options.grace_after_signal = std::chrono::seconds(line.integer("grace"));
  check(line.operands, ranks);
  return launch::launch_local(ranks, line.operands, options);
}

}  // namespace

constinit const Command launch_command{
    .name = "launch",
    .summary = "run a command as several ranks on this machine",
    .usage = "--nproc N [--all-output] [--grace SECONDS] -- COMMAND...",
    .about =
        "Runs a command of consist as N ranks on this machine, with the environment variables of torchrun. Rank 0\n"
        "prints as usual; other ranks print only errors, after \"[rank k]\".\n",
    .own = launch_options,
    .notes = "Returns 0 if all ranks do, otherwise the status of the first that failed by itself.\n",
    .example = "consist launch --nproc 2 -- train --model llama-tiny --strategy ddp\n",
    .operand = "-- COMMAND",
    .run = launch};

}  // namespace consist::commands
