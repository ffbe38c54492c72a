// consist probe-plugin FILE: prints why the plugin cannot work on this machine, in the form of core/plugin/probe.h. Started by
// `consist plugins`.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "consist/error.h"
#include "core/plugin/host.h"
#include "core/plugin/plugin_faults.h"
#include "core/plugin/probe.h"
#include "launch/commands/commands.h"

namespace consist::commands {

namespace {

int probe_plugin(const CommandLine& line) {
  if (line.arguments.size() != 1) throw UsageError("consist probe-plugin needs one file");
  // Nothing of the plugin runs behind the answer: what it does at the exit of a process is not asked for.
  command_finished();  // how the plugin ends the process is for the one that asks to see
  auto answer = [](std::string_view mark, const std::string& reason) {
    std::fputs((std::string(mark) + reason + "\n").c_str(), stdout);
    std::fflush(stdout);
    std::_Exit(0);
  };
  try {
    answer(probe_works, consist::probe_plugin(line.arguments[0]));
  } catch (const std::exception& error) {
    answer(probe_refused, error.what());
  }
  return 0;
}

}  // namespace

constinit const Command probe_plugin_command{.name = "probe-plugin", .takes = Takes::words, .run = probe_plugin};

}  // namespace consist::commands
