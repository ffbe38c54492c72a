// consist launch: a command of `consist` as several ranks on this machine.
#include <charconv>
#include <cstdio>

#include "consist/error.h"
#include "launch/commands/commands.h"
#include "launch/start/launcher.h"

namespace consist::commands {
namespace {

constexpr const char* help =
    "usage: consist launch --nproc N [--all-output] [--grace SECONDS] -- COMMAND...\n\n"
    "Runs a command of consist as N ranks on this machine, with the environment variables of torchrun. Rank 0\n"
    "prints as usual; other ranks print only errors, after \"[rank k]\".\n\n"
    "  --nproc N         number of ranks\n"
    "  --all-output      show the standard output of all ranks\n"
    "  --grace SECONDS   after Ctrl-C: time for the ranks to end by themselves (default 60)\n\n"
    "Returns 0 if all ranks do, otherwise the status of the first that failed by itself.\n\n"
    "example: consist launch --nproc 2 -- train --model llama-tiny --strategy ddp\n";

int number(const std::string& option, const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) {
    throw UsageError("consist launch " + option + " is '" + text + "'; it must be a whole number above 0");
  }
  return value;
}

/// Checks the command once, so that not every rank prints the same error.
void check(const Arguments& command, int ranks) {
  for (const Command& known : table) {
    if (command[0] != known.name) continue;
    if (known.run == train) check_train({command.begin() + 1, command.end()}, ranks);
    return;
  }
  throw UsageError("there is no command '" + command[0] + "' that could be launched; see consist --help");
}

}  // namespace

int launch(const Arguments& arguments) {
  int ranks = 0;
  launch::LaunchOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool valued = argument == "--nproc" || argument == "--grace";
    if (valued && i + 1 == arguments.size()) throw UsageError("consist launch " + argument + " needs a value");
    if (argument == "--help") {
      std::fputs(help, stdout);
      return 0;
    } else if (argument == "--nproc") {
      ranks = number(argument, arguments[++i]);
    } else if (argument == "--grace") {
      options.grace_after_signal = std::chrono::seconds(number(argument, arguments[++i]));
    } else if (argument == "--all-output") {
      options.all_output = true;
    } else if (argument == "--") {
      const Arguments command(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      if (ranks == 0) throw UsageError("consist launch needs --nproc, the number of ranks");
      if (command.empty()) throw UsageError("consist launch has no command after --; see consist launch --help");
      check(command, ranks);
      return launch::launch_local(ranks, command, options);
    } else {
      throw UsageError("consist launch has no option '" + argument + "'; the command of the ranks comes after --");
    }
  }
  throw UsageError("consist launch has no command; see consist launch --help");
}

}  // namespace consist::commands
