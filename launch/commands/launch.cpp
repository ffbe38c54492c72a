// consist launch: a command of `consist` as several ranks on this machine.
#include <chrono>
#include <string>
#include <vector>

#include "consist/error.h"
#include "core/base/number.h"
#include "core/job/environment.h"
#include "launch/commands/commands.h"
#include "launch/start/launcher.h"
#include "launch/start/restart_options.h"

namespace consist::commands {
namespace {

constexpr RunOption launch_options[] = {
    valued("nproc", OptionKind::integer, "", "N", "number of ranks", "1..65536"),
    valued("nnodes", OptionKind::text, "1", "M", "number of machines, each with N ranks; LEAST:M goes on with fewer"),
    valued("node-rank", OptionKind::integer, "0", "I", "this machine's number, from 0", "0.."),
    valued("node-wait", OptionKind::integer, "20", "SECONDS", "with LEAST:M, how long a lost machine may come back before",
           "0..86400"),
    valued("master", OptionKind::text, "", "HOST:PORT", "where the launcher of machine 0 listens, with --nnodes"),
    a_switch("all-output", "show the standard output of all ranks"),
    valued("grace", OptionKind::integer, "60", "SECONDS", "after Ctrl-C: time for the ranks to end by themselves", "1.."),
};

/// "4" or "3:4": the number of machines, and with how many the job goes on when others are lost.
void read_nodes(const std::string& text, launch::NodeOptions& nodes) {
  constexpr int most_nodes = 65'536;
  const std::size_t colon = text.find(':');
  const std::string_view all = colon == std::string::npos ? std::string_view(text) : std::string_view(text).substr(colon + 1),
                         least = std::string_view(text).substr(0, colon);
  if (!parse_number(all, nodes.nodes) || !parse_number(least, nodes.least) || nodes.least < 1 || nodes.nodes < nodes.least ||
      nodes.nodes > most_nodes)
    throw UsageError("--nnodes is '" + text +
                     "'; it is a number of machines, such as 4, or two, such as 3:4, of which the first says " +
                     "with how many the job goes on when others are lost");
}

/// This machine's place among several. The secret comes from the environment.
launch::NodeOptions node_options(const CommandLine& line) {
  launch::NodeOptions nodes{.node = static_cast<int>(line.integer("node-rank"))};
  read_nodes(line.value("nnodes"), nodes);
  nodes.wait = std::chrono::seconds(line.integer("node-wait"));
  if (nodes.nodes == 1) return nodes;
  if (nodes.node >= nodes.nodes)
    throw UsageError("--node-rank is " + std::to_string(nodes.node) + " of --nnodes " + std::to_string(nodes.nodes) +
                     "; machines are numbered from 0");
  const std::string master = line.value("master");
  const std::size_t colon = master.rfind(':');
  if (colon == std::string::npos || colon == 0 || !parse_number(std::string_view(master).substr(colon + 1), nodes.port) ||
      nodes.port == 0)
    throw UsageError("--master is '" + master +
                     "'; with --nnodes it names the host of machine 0 and a port there that is free, such as "
                     "node07:29500");
  nodes.host = master.substr(0, colon);
  if (nodes.host.starts_with('[') && nodes.host.ends_with(']')) nodes.host = nodes.host.substr(1, nodes.host.size() - 2);
  nodes.token = job_token(process_environment());
  return nodes;
}

/// Checks the command once, so that not every rank prints the same error, and takes over how failed ranks are replaced. `ranks`:
/// of this machine.
void check(const std::vector<std::string>& command, int ranks, launch::LaunchOptions& options) {
  const Command* const known = find_command(table(), command[0]);
  if (known == nullptr) throw UsageError("there is no command '" + command[0] + "' that could be launched; see consist --help");
  if (known != &train_command) {
    if (options.nodes.varies()) throw UsageError("--nnodes LEAST:M is for `consist train --max-restarts K`");
    return;
  }
  const launch::RestartOptions restarts =
      check_train({command.begin() + 1, command.end()}, ranks, options.nodes.nodes, options.nodes.least);
  options.max_restarts = restarts.most;
  options.snapshots = restarts.snapshot_every > 0;
  options.nodes.timeout = std::chrono::seconds(restarts.timeout_seconds);
  options.nodes.unfit = restarts.unfit;
}

int launch(const CommandLine& line) {
  if (line.operands.empty()) throw UsageError("consist launch has no command after --; see consist launch --help");
  if (!line.has("nproc")) throw UsageError("consist launch needs --nproc, the number of ranks");
  const auto ranks = static_cast<int>(line.integer("nproc"));
  launch::LaunchOptions options{.all_output = line.flag("all-output")};
  options.grace_after_signal = std::chrono::seconds(line.integer("grace"));
  options.nodes = node_options(line);
  check(line.operands, ranks, options);
  return launch::launch_local(ranks, line.operands, options);
}

}  // namespace

constinit const Command launch_command{
    .name = "launch",
    .summary = "run a command as several ranks on this machine, or on several",
    .usage = "--nproc N [--nnodes [LEAST:]M --node-rank I --master HOST:PORT] [OPTIONS] -- COMMAND...",
    .about =
        "Runs a command of consist as N ranks on this machine, with the environment variables of torchrun. Rank 0\n"
        "prints as usual; other ranks print only errors, after \"[rank k]\". With --nnodes the same command runs on each of M\n"
        "machines, with the secret CONSIST_JOB_TOKEN, and the ranks of all are one job (docs/jobs.md). --nnodes 3:4 lets `train\n"
        "--max-restarts` go on with 3 of 4 machines when one is lost and none takes its place.\n",
    .own = launch_options,
    .notes = "Returns 0 if all ranks do, otherwise the status of the first that failed by itself.\n",
    .example = "consist launch --nproc 2 -- train --model llama-tiny --strategy ddp\n",
    .operand = "-- COMMAND",
    .run = launch};

}  // namespace consist::commands
