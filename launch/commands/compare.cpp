// consist compare: every combination of the listed parts, each in processes of its own, and a table of what they are worth.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "consist/error.h"
#include "core/program/printable.h"
#include "core/runtime/parts.h"
#include "core/runtime/text.h"
#include "launch/child_process.h"
#include "launch/commands/commands.h"
#include "launch/compare_effects.h"
#include "launch/compare_rows.h"
#include "launch/compare_table.h"
#include "launch/exit_status.h"
#include "launch/run_options.h"

namespace consist::commands {
namespace {

namespace fs = std::filesystem;
using namespace launch;

constexpr const char* help =
    "usage: consist compare --model A,B --strategy S,T --precision P,Q ... [--output FOLDER] [OPTIONS of train]\n\n"
    "Trains every combination of the listed values, one after the other, each in processes of its own, and\n"
    "prints a table: tokens/s with its spread, step time, share of the measured bound, planned and measured\n"
    "memory, bytes sent, final loss and its parity; the fastest of each model is marked; then what each choice is\n"
    "worth by itself. Combinations that\n"
    "are illegal or unavailable are in the table with their reason, and a run that fails does not stop the\n"
    "rest. Run again with the same options, it goes on where it stopped.\n\n"
    "  --output FOLDER   archives, logs and comparison.h5 (default runs/compare)\n"
    "  --overwrite       begin anew: what the folder holds of these runs is made again\n"
    "  lists may be given to: --model --strategy --transport --precision --ranks --device --batch\n"
    "  --global-batch --sequence --accumulation --recompute --deepspeed-set; a transport per strategy is written\n"
    "  a=T1+b=T2, several ops to recompute A+B, several values of a DeepSpeed key KEY=V1,V2. All other options are\n"
    "  those of consist train and hold for every run; those of a part, for the runs that have it. --checkpoint and\n"
    "  --export name a folder in which each run has its own, --trace a file to whose name each adds its own.\n\n"
    "example: consist compare --model llama-tiny,qwen3-tiny --ranks 1,2 --precision fp32,bf16 --global-batch 8 --steps 40\n";

std::atomic<bool> interrupted{false};
extern "C" void on_interrupt(int) {
  interrupted = true;
}

struct Request {
  std::vector<std::string> train;  ///< the arguments of train, lists unexpanded
  std::string output = "runs/compare";
  bool overwrite = false;  ///< runs that are done are done again
};

Request read_request(const Arguments& arguments) {
  Request request;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--output") {
      if (++i == arguments.size()) throw UsageError("--output needs a folder");
      request.output = arguments[i];
    } else if (arguments[i].starts_with("--output=")) {
      request.output = arguments[i].substr(9);
    } else if (arguments[i] == "--archive" || arguments[i].starts_with("--archive=")) {
      throw UsageError("compare names the archives itself, in the folder of --output; leave --archive out");
    } else if (arguments[i] == "--overwrite") {
      request.overwrite = true;
    } else {
      request.train.push_back(arguments[i]);
    }
  }
  return request;
}

/// The configuration that the row's run will record, or what is wrong with it.
std::string config_of(const CompareRow& row, std::string& problem) {
  try {
    const ParsedRun parsed = parse_run(row.arguments, {});
    PluginHost host(plugin_paths(parsed.values));
    RunConfig config = make_config(parsed, host);
    check_make_up(config, host);
    return config.to_json();
  } catch (const Error& error) {
    problem = error.what();
    return {};
  }
}

/// Leaves out of every row the options of parts that only other rows have: `--efa.provider tcp` beside `--transport socket,efa`.
/// Options that no row can use stay, so that they are refused.
void leave_out_stray_options(std::vector<CompareRow>& rows) {
  std::vector<std::vector<std::string>> stray(rows.size());
  std::map<std::string, std::size_t> strays;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    try {
      const ParsedRun parsed = parse_run(rows[i].arguments, {});
      PluginHost host(plugin_paths(parsed.values));
      stray[i] = stray_owners(make_config(parsed, host), host);
    } catch (const Error&) {
      continue;  // refused with its reason when its turn comes
    }
    for (const std::string& owner : stray[i]) ++strays[owner];
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const std::string& owner : stray[i]) {
      if (strays[owner] < rows.size()) remove_options_of(owner, rows[i]);
    }
  }
}

CompareOutcome run_row(const CompareRow& row, const std::string& archive, const std::string& log_path) {
  std::ofstream log(log_path);
  const bool terminal = isatty(STDERR_FILENO) == 1;
  std::string last;
  std::string reason;
  std::vector<std::string> arguments{"train"};
  arguments.insert(arguments.end(), row.arguments.begin(), row.arguments.end());
  arguments.insert(arguments.end(), {"--archive", archive, "--overwrite"});
  const int status = run_child(arguments, [&](const std::string& said) {
    const std::string line = printable(said);
    log << line << std::endl;
    // The reason of a failure is the message and what it lists below; of several ranks the first one's.
    if (line.starts_with("consist: ") && reason.empty()) reason = line.substr(9);
    last = line;
    if (terminal && line.starts_with("step ")) std::fprintf(stderr, "\r\033[K  %s", line.c_str());
  });
  if (terminal) std::fputs("\r\033[K", stderr);
  if (status == 0) return read_outcome(archive);
  if (reason.empty()) reason = last.empty() ? "exit status " + std::to_string(status) : last;
  return {.status = status == 2 ? "refused" : "failed", .reason = reason + " (see " + log_path + ")"};
}

}  // namespace

int compare(const Arguments& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--help") {
      std::fputs(help, stdout);
      return 0;
    }
  }
  const Request request = read_request(arguments);
  std::vector<CompareRow> rows = expand_rows(request.train);
  leave_out_stray_options(rows);
  std::error_code error;
  fs::create_directories(request.output, error);
  if (error) throw SystemError("cannot make the folder " + request.output + ": " + error.message());
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);

  const std::string summary = (fs::path(request.output) / "comparison.h5").string();
  std::vector<CompareOutcome> outcomes(rows.size(), {.status = "pending", .reason = "not run yet"});
  std::vector<std::string> archives(rows.size());
  bool failed = false;
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < rows.size() && !interrupted; ++i) {
    const std::string archive = (fs::path(request.output) / (rows[i].label + ".h5")).string();
    std::fprintf(stderr, "[%zu/%zu] %s\n", i + 1, rows.size(), rows[i].label.c_str());
    std::string problem;
    const std::string config = config_of(rows[i], problem);
    if (!problem.empty()) {
      outcomes[i] = {.status = "refused", .reason = problem};
    } else if (!request.overwrite && is_done(archive, config)) {
      std::fprintf(stderr, "  done before\n");
      outcomes[i] = read_outcome(archive);
    } else {
      outcomes[i] = run_row(rows[i], archive, (fs::path(request.output) / (rows[i].label + ".log")).string());
    }
    if (fs::exists(archive, error)) archives[i] = archive;
    failed |= outcomes[i].status == "failed";
    if (outcomes[i].status == "finished") {
      std::fprintf(stderr, "  %s tokens/s, loss %.4f\n", si_text(outcomes[i].tokens_per_second).c_str(), outcomes[i].final_loss);
    } else {
      std::fprintf(stderr, "  %s: %s\n", outcomes[i].status.c_str(), outcomes[i].reason.c_str());
    }
    write_comparison_archive(summary, rows, outcomes, archives);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("\n%s%s%s, %s\n", comparison_text(rows, outcomes).c_str(), effects_text(rows, outcomes).c_str(),
              duration_text(seconds).c_str(), summary.c_str());
  if (interrupted) return 130;
  if (failed) return exit_failed;
  const bool any =
      std::any_of(outcomes.begin(), outcomes.end(), [](const CompareOutcome& outcome) { return outcome.status == "finished"; });
  return any ? 0 : exit_usage;
}

}  // namespace consist::commands
