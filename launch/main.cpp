// The executable `consist`: picks the subcommand and turns errors into messages and exit statuses.
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "consist/error.h"
#include "consist/plugin.h"
#include "consist/text.h"
#include "core/base/did_you_mean.h"
#include "core/plugin/plugin_faults.h"
#include "core/plugin/signal_guard.h"
#include "launch/cli/build_facts.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_output.h"
#include "launch/commands/commands.h"
#include "launch/start/process_setup.h"

namespace {

constexpr const char* version = CONSIST_VERSION;

using consist::Command;

/// Commands in the overview: those of two words are in the help of the first.
bool is_shown(const Command& command) {
  return !command.is_hidden() && command.name.find(' ') == std::string_view::npos;
}

void print_help() {
  std::puts(
      "Consist composes a training run from interchangeable parts, runs it, and measures which configuration is fastest.\n\n"
      "usage: consist COMMAND [OPTIONS]\n");
  for (const Command* command : consist::commands::table()) {
    if (is_shown(*command)) std::printf("  %-10s %s\n", std::string(command->name).c_str(), command->summary);
  }
  std::puts(
      "\n`consist COMMAND --help` shows the command's options.\n\n"
      "example: consist compare --model llama-tiny,qwen3-tiny --strategy ddp --ranks 1,2 --precision fp32,bf16 --steps 50");
}

/// The version in a line, and the build's facts below it.
void print_version(bool as_json) {
  nlohmann::ordered_json json{
      {"version", version}, {"plugin_api", consist::plugin_api_version}, {"fingerprint", CONSIST_FINGERPRINT}};
  if (!as_json) std::printf("consist %s, plugin API %u, %s\n", version, consist::plugin_api_version, CONSIST_FINGERPRINT);
  std::istringstream facts(consist::launch::build_facts());
  for (std::string line; std::getline(facts, line);) {
    const std::size_t equals = line.find('=');
    const std::string name = line.substr(0, equals), value = line.substr(equals + 1);
    json[name] = value;
    if (!as_json) std::printf("  %-9s %s\n", name.c_str(), value.c_str());
  }
  if (as_json) std::printf("%s\n", json.dump(2).c_str());
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    print_help();
    return arguments.empty() ? 2 : 0;
  }
  if (arguments[0] == "--version") {
    print_version(arguments.size() > 1 && arguments[1] == "--json");
    return 0;
  }
  const consist::CommandTable table = consist::commands::table();
  if (arguments.size() > 1) {
    if (const Command* command = consist::find_command(table, arguments[0] + " " + arguments[1]))
      return run_command(*command, {arguments.begin() + 2, arguments.end()});
  }
  if (const Command* command = consist::find_command(table, arguments[0]))
    return run_command(*command, {arguments.begin() + 1, arguments.end()});
  std::vector<consist::KnownName> known;
  for (const Command* command : table) {
    if (is_shown(*command)) known.push_back({std::string(command->name)});
  }
  throw consist::UsageError("there is no command '" + arguments[0] + "'; see consist --help." +
                            consist::did_you_mean(arguments[0], known));
}

/// Messages hold names and values from files and from other processes. Returns `status`.
int report(const std::exception& error, int status) {
  std::fprintf(stderr, "consist: %s\n", consist::printable(error.what()).c_str());
  consist::launch::print_error_event(error.what(), status);
  return status;
}

/// The command, and the message and status of what it threw.
int status_of(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const consist::UsageError& error) {
    return report(error, consist::exit_usage);
  } catch (const consist::PeerError& error) {
    return report(error, consist::exit_peer_failed);
  } catch (const std::exception& error) {
    return report(error, consist::exit_failed);
  } catch (...) {
    std::fprintf(stderr, "consist: something was thrown that is no exception\n");
    return consist::exit_failed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  consist::launch::open_standard_descriptors();
  consist::launch::raise_descriptor_limit();
  consist::report_plugin_faults();
  consist::keep_backtraces_off();
  const int status = status_of(argc, argv);
  consist::command_finished();
  return status;
}
