// consist check PLUGIN.so: the conformance suite of the plugin's kind, run against it.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "consist/error.h"
#include "consist/text.h"
#include "core/base/option_name.h"
#include "core/plugin/host.h"
#include "core/plugin/manifest.h"
#include "core/plugin/probe.h"
#include "launch/cli/exit_status.h"
#include "launch/commands/commands.h"

extern char** environ;

namespace consist::commands {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr RunOption check_options[] = {
    repeated(valued("option", OptionKind::text, "", "NAME=VALUE",
                    "an option of the plugin, without the plugin's name; may be repeated")),
    repeated(valued("plugin", OptionKind::text, "", "PATH",
                    "plugins that this one needs, such as the kernels of its ops; may be repeated")),
    valued("skip", OptionKind::text, "", "PATTERN", "leave out tests of that name, such as '*Losses*'"),
    valued("timeout", OptionKind::integer, "600", "SECONDS", "time limit of the suite", "1.."),
};

/// A kind's suite: the program, the variable that names candidates, and those of the program's tests.
struct Suite {
  std::string program, variable, tests;
};

Suite suite_of(const std::string& kind) {
  if (kind == "strategy") return {"test_conformance_strategy", "CONSIST_CONFORMANCE_STRATEGIES", "*"};
  if (kind == "transport") return {"test_conformance_transport", "CONSIST_CONFORMANCE_TRANSPORTS", "*"};
  if (kind == "model") return {"test_conformance_parts", "CONSIST_CONFORMANCE_MODELS", "*ModelConformance*"};
  if (kind == "adapter") return {"test_conformance_parts", "CONSIST_CONFORMANCE_ADAPTERS", "*AdapterConformance*"};
  if (kind == "loss") return {"test_conformance_parts", "CONSIST_CONFORMANCE_LOSSES", "*LossConformance*"};
  if (kind == "dataset") return {"test_conformance_parts", "CONSIST_CONFORMANCE_DATASETS", "*DatasetConformance*"};
  if (kind == "kernels") return {"test_conformance_parts", "CONSIST_CONFORMANCE_KERNELS", "*KernelsConformance*"};
  if (kind == "optimizer") return {"test_conformance_parts", "CONSIST_CONFORMANCE_OPTIMIZERS", "*OptimizerConformance*"};
  if (kind == "schedule") return {"test_conformance_parts", "CONSIST_CONFORMANCE_SCHEDULES", "*ScheduleConformance*"};
  if (kind == "precision") return {"test_conformance_parts", "CONSIST_CONFORMANCE_PRECISIONS", "*PrecisionConformance*"};
  if (kind == "device") return {"test_conformance_parts", "CONSIST_CONFORMANCE_DEVICES", "*DeviceConformance*"};
  throw UsageError("plugins of kind '" + kind + "' have no conformance suite; the record is right, and it loads here");
}

std::string find_program(const std::string& name) {
  const fs::path bin = executable_folder();
  for (const fs::path& place : {bin.parent_path() / "libexec" / "consist" / name, bin / name}) {
    std::error_code ignored;
    if (fs::exists(place, ignored)) return place.string();
  }
  throw UnavailableError("the conformance programs are not there (" + (bin.parent_path() / "libexec/consist" / name).string() +
                         "): this Consist was built without tests, or installed before they were built. Configure it with "
                         "-DCONSIST_BUILD_TESTS=ON, which "
                         "needs GoogleTest, build the target " +
                         name + " and install again");
}

struct CheckRequest {
  std::string file;
  std::string options;  ///< ":name=value..." as candidates are named
  std::string others;   ///< ":path..." of plugins that this one needs
  std::string skip;     ///< a pattern of tests
  int timeout_seconds = 600;
};

CheckRequest read_check_request(const CommandLine& line) {
  CheckRequest request;
  if (line.operands.empty()) throw UsageError("consist check needs a plugin's file; see consist check --help");
  if (line.operands.size() > 1)
    throw UsageError("consist check takes one plugin, given are '" + line.operands[0] + "' and '" + line.operands[1] + "'");
  request.file = line.operands.front();
  request.skip = line.text("skip");
  request.timeout_seconds = static_cast<int>(line.integer("timeout"));
  for (const std::string& option : line.texts("option")) {
    if (option.find('=') == std::string::npos || option.find_first_of(",:") != std::string::npos)
      throw UsageError("--option is '" + option + "'; it must be NAME=VALUE, without ',' and ':'");
    request.options += ":" + option;
  }
  for (const std::string& plugin : line.texts("plugin")) {
    std::error_code ignored;
    const fs::path other = fs::canonical(plugin, ignored);
    if (other.empty()) throw UsageError("--plugin is '" + plugin + "', which is not there");
    request.others += ":" + other.string();
  }
  return request;
}

/// The result of a suite.
struct Outcome {
  int status = 0;  ///< its exit status, 128 + n for signal n, or timed_out
  bool to_the_end = false;
  int tests = 0, skipped = 0;  ///< if it ran to the end
};
constexpr int timed_out = 124;

/// Waits for the suite; ends it after the timeout.
int wait_for(pid_t child, int timeout_seconds) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(timeout_seconds);
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (ended < 0 && errno != EINTR) throw SystemError(std::string("cannot wait for the suite: ") + std::strerror(errno));
    if (Clock::now() >= deadline) {
      kill(child, SIGKILL);
      while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
      }
      return timed_out;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// Runs the suite with this process's output.
Outcome run_suite(const std::string& program, const std::string& tests, int timeout_seconds) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw SystemError(std::string("cannot make a pipe: ") + std::strerror(errno));
  // Where the suite says that it has come to its end: an exit status alone may be a plugin's.
  constexpr int result_fd = 3;
  setenv("CONSIST_CONFORMANCE_RESULT", std::to_string(result_fd).c_str(), 1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], result_fd);
  const std::string filter = "--gtest_filter=" + tests, brief = "--gtest_color=no";
  const char* arguments[] = {program.c_str(), filter.c_str(), brief.c_str(), nullptr};
  pid_t child = -1;
  std::fflush(stdout);
  const int error = posix_spawn(&child, program.c_str(), &actions, nullptr, const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Outcome outcome;
  char text[64] = {};
  if (error == 0) {
    outcome.status = wait_for(child, timeout_seconds);
    if (read(ends[0], text, sizeof text - 1) > 0)
      outcome.to_the_end = std::sscanf(text, "%d %d", &outcome.tests, &outcome.skipped) == 2;
  }
  close(ends[0]);
  if (error != 0) throw SystemError("cannot start " + program + ": " + std::strerror(error));
  return outcome;
}

/// The first option of the plugin whose name has an underscore; empty if none has.
std::string misspelt_option(const PluginInfo& info, const std::string& file) {
  PluginHost host({file});
  for (const OptionSpec& spec : host.option_table(info.kind, info.name)) {
    if (std::string_view(spec.name).find('_') != std::string_view::npos) return printable(spec.name);
  }
  return {};
}

/// Throws UsageError for an option that the plugin does not have and for an illegal value, for which a suite could but leave out
/// its tests.
void check_given(const std::vector<std::string>& given, const PluginInfo& info, const std::string& file) {
  PluginHost host({file});
  const std::vector<OptionSpec> table = host.option_table(info.kind, info.name);
  Options options(info.name);
  for (const std::string& option : given) {
    const std::size_t equals = option.find('=');
    const std::string name = option.substr(0, equals);
    const auto spec = std::ranges::find_if(table, [&](const OptionSpec& one) { return name == one.name; });
    if (spec == table.end()) {
      std::string known;
      for (const OptionSpec& one : table) known += " " + printable(one.name);
      throw UsageError("--option is '" + printable(option) + "', but " + info.kind + " '" + info.name +
                       "' has no option of that name. It has" + (known.empty() ? " none" : known));
    }
    options.set(*spec, option.substr(equals + 1));
  }
}

/// Why the plugin does not conform; empty if it does.
std::string problem_of(const Outcome& outcome, const CheckRequest& request) {
  if (outcome.status == timed_out) return "the suite did not end within " + std::to_string(request.timeout_seconds) + " s";
  if (outcome.status >= 128) return std::string("the suite crashed: ") + strsignal(outcome.status - 128);
  if (!outcome.to_the_end)
    return "the process was ended in the midst of the suite, with status " + std::to_string(outcome.status) +
           "; plugins report failures by throwing";
  if (outcome.status != 0) return "some tests failed, see above";
  if (outcome.tests == 0) return "no test was run; --skip '" + request.skip + "' leaves out all";
  if (outcome.tests == outcome.skipped)
    return "nothing was checked, since none of its " + std::to_string(outcome.tests) +
           " tests could run here, see above; --option NAME=VALUE gives an option that it needs";
  return {};
}

int check(const CommandLine& line) {
  const CheckRequest request = read_check_request(line);
  const PluginManifest info = read_manifest(request.file);
  const std::string file = fs::canonical(request.file).string(), kind = info.kind;
  std::printf("%s %s %s (%s)\n", printable(info.kind).c_str(), printable(info.name).c_str(), printable(info.version).c_str(),
              printable(file).c_str());
  if (const std::string problem = incompatibility(info); !problem.empty())
    throw UnavailableError(file + " cannot be used: " + problem);
  const Availability found = probe_in_child(file, std::chrono::seconds(20));
  if (!found.loads) throw UnavailableError(file + " cannot be loaded: " + found.reason);
  if (!found.reason.empty())
    throw UnavailableError(kind + " '" + info.name + "' cannot work here, so that nothing can be checked: " + found.reason);

  if (const std::string name = misspelt_option(info, file); !name.empty()) {
    std::fprintf(
        stderr,
        "consist check: %s '%s' does not conform: its option '%s' has an underscore; words of a name are joined by '-': '%s'\n",
        info.kind, info.name, name.c_str(), with_dashes(name).c_str());
    return exit_failed;
  }
  check_given(line.texts("option"), info, file);
  const Suite suite = suite_of(kind);
  const std::string program = find_program(suite.program);
  const char* path = std::getenv("CONSIST_PLUGIN_PATH");
  setenv("CONSIST_PLUGIN_PATH", (file + request.others + (path == nullptr ? "" : std::string(":") + path)).c_str(), 1);
  setenv(suite.variable.c_str(), (std::string(info.name) + request.options).c_str(), 1);
  const Outcome outcome =
      run_suite(program, suite.tests + (request.skip.empty() ? "" : "-" + request.skip), request.timeout_seconds);
  if (const std::string problem = problem_of(outcome, request); !problem.empty()) {
    std::fprintf(stderr, "consist check: %s '%s' does not conform: %s\n", info.kind, info.name, problem.c_str());
    return exit_failed;
  }
  std::string limits;
  if (!request.skip.empty()) limits += "; tests named " + request.skip + " were left out";
  if (outcome.skipped > 0)
    limits +=
        "; " + std::to_string(outcome.skipped) + " of " + std::to_string(outcome.tests) + " tests could not run here, see above";
  std::printf("consist check: %s '%s' conforms%s\n", info.kind, info.name, limits.c_str());
  return 0;
}

}  // namespace

constinit const Command check_command{
    .name = "check",
    .summary = "run the conformance tests of a plugin's kind against it",
    .usage = "PLUGIN.so [--option NAME=VALUE]... [--plugin PATH]... [--skip PATTERN] [--timeout SECONDS]",
    .about = "Checks a plugin: its record, whether it loads on this machine, and the conformance suite of its kind.\n",
    .own = check_options,
    .notes = "Returns 0 if all tests that can run on this machine passed, 1 if not, or if none can.\n",
    .example = "consist check build/lib/consist/plugins/strategy-ddp-plain.so --option message=each\n",
    .operand = "FILE",
    .run = check};

}  // namespace consist::commands
