// consist train: one training run, of one or several ranks.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "consist/error.h"
#include "consist/text.h"
#include "core/job/environment.h"
#include "core/plan/other_ranks.h"
#include "core/plan/plan.h"
#include "core/training/run.h"
#include "launch/cli/config_of_archive.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_output.h"
#include "launch/cli/run_options.h"
#include "launch/cluster/cluster.h"
#include "launch/cluster/options.h"
#include "launch/cluster/train_on_cluster.h"
#include "launch/commands/commands.h"
#include "launch/generate/model_text.h"
#include "launch/import/hub_download.h"
#include "launch/residual/residual.h"
#include "launch/residual/residual_text.h"
#include "launch/search/advise/run_adviser.h"
#include "launch/start/run_in_job.h"

namespace consist::commands {
namespace {

constexpr RunOption of_results(RunOption row) {
  row.group = OptionGroup::results;
  return row;
}

constexpr RunOption train_options[] = {
    launch::on_option,
    launch::cluster_option,
    launch::dry_run_option,
    of_results(valued("max-restarts", OptionKind::integer, "0", "K", "failures after which all start anew", "0..10000")),
    of_results(valued("snapshot-every", OptionKind::integer, "50", "N", "steps between copies in memory", "0..")),
};

launch::RestartOptions restart_options(const CommandLine& line) {
  constexpr double share_unless_asked = 0.01;
  return {.most = static_cast<int>(line.integer("max-restarts")),
          .snapshot_every = line.integer("snapshot-every"),
          .snapshot_share = line.has("snapshot-every") ? 0 : share_unless_asked};
}

/// The options as a command line of the ranks' launcher has them; none without restarts.
std::vector<std::string> words_of(const launch::RestartOptions& restarts, bool says_snapshots) {
  if (restarts.most == 0) return {};
  std::vector<std::string> words{"--max-restarts", std::to_string(restarts.most)};
  if (says_snapshots) words.insert(words.end(), {"--snapshot-every", std::to_string(restarts.snapshot_every)});
  return words;
}

/// The numbers of nodes below config.ranks / ranks with which the job cannot go on, and why. Throws where it can with none.
std::map<int, std::string> unfit_nodes(const RunConfig& config, PluginHost& host, int ranks, int least) {
  const int nodes = config.ranks / ranks;
  std::map<int, std::string> unfit;
  for (int fewer = least; fewer < nodes; ++fewer) {
    try {
      plan_training(with_ranks(config, ranks * fewer, host), host);
    } catch (const UsageError& error) {
      unfit[fewer] = error.what();
    }
  }
  if (!unfit.empty() && unfit.size() == static_cast<std::size_t>(nodes - least))
    throw UsageError("--nnodes " + std::to_string(least) + ":" + std::to_string(nodes) +
                     ": the job cannot go on with fewer than " + std::to_string(nodes) + " nodes. With " +
                     std::to_string(nodes - 1) + ": " + unfit.rbegin()->second);
  return unfit;
}

}  // namespace

launch::RestartOptions check_train(const std::vector<std::string>& arguments, int ranks, int nodes, int least) {
  const CommandLine line = read_command_line(train_command, arguments);
  if (line.flag("help")) return {};
  const ParsedRun parsed = parse_run(line);
  PluginHost host(plugin_paths(parsed));
  RunConfig config = make_config(parsed, host);
  launch::check_ranks(parsed, config, ranks * nodes);
  config.ranks = ranks * nodes;
  plan_training(config, host);
  say_plugin_warnings(host);
  launch::RestartOptions restarts = restart_options(parsed);
  restarts.timeout_seconds = config.timeout_seconds;
  if (least == nodes) return restarts;
  if (restarts.most == 0)
    throw UsageError("--nnodes " + std::to_string(least) + ":" + std::to_string(nodes) + " lets a job go on with " +
                     std::to_string(least) + " nodes when others are lost, which needs --max-restarts K");
  restarts.unfit = unfit_nodes(config, host, ranks, least);
  return restarts;
}

namespace {

/// Adds what `consist advise` would say: configurations that fit, and before the first step faster ones.
RunHooks advice_hooks(PluginHost& host) {
  return {.refused =
              [&host](const Plan& plan, const RunMemory& memory) {
                const std::string fitting = launch::RunAdviser(host).fitting(plan, memory);
                return fitting.empty() ? "" : "\nThese fit, by their plans and simulated steps:\n" + fitting;
              },
          .before_training =
              [&host](const Plan& plan, const RunMemory& memory, double compile_seconds) {
                return launch::RunAdviser(host).faster(plan, memory, compile_seconds);
              }};
}

/// Throws where nothing says how long the training is to be: an evaluation's archive has no steps.
void require_length(const ParsedRun& parsed) {
  const std::string path = parsed.text("config");
  if (!is_archive_name(path) || parsed.is_on_command_line("steps") || parsed.is_on_command_line("epochs") ||
      !is_of_evaluation(path))
    return;
  throw UsageError("--config " + path +
                   " is the archive of an evaluation, which says nothing of the length of a training; give --steps or --epochs");
}

/// Says how far the step was from the predicted one, where predictions for the machine are known to be good.
void print_residual(const std::string& archive) {
  const launch::Residual residual = launch::residual_if_readable(archive);
  if (!residual.problem.empty() || !residual.step_error) return;
  const std::string more = residual.within_error() ? "" : "; consist residual " + archive + " says more";
  std::fputs(printable(launch::residual_line(residual) + more + "\n").c_str(), stdout);
}

int train(const CommandLine& line) {
  const ParsedRun parsed = parse_run(line);
  require_length(parsed);
  PluginHost host(plugin_paths(parsed));
  RunConfig config = make_config(parsed, host);
  const launch::RestartOptions restarts = restart_options(parsed);
  if (restarts.most == 0 && parsed.has("snapshot-every"))
    config.notes.emplace_back("--snapshot-every has no effect here; it needs --max-restarts K");
  if (parsed.flag("print-config")) {
    print_config(config, host, plugin_paths(parsed));
    return 0;
  }
  if (launch::is_on_cluster(parsed))
    return launch::train_on_cluster(parsed, std::move(config), host, words_of(restarts, parsed.has("snapshot-every")));
  if (job_address_from_environment(process_environment()).size == 1) launch::bring_hub_model(config.model, !config.from_scratch);
  return launch::run_in_job(
      "train", line.arguments, parsed, std::move(config), host,
      [&](const Plan& plan, JoinedJob& job, launch::StopSignals& signals, const Continuation& continuation) {
        const auto samples = launch::sample_request(plan.config(), plan.parts(), host);
        RunHooks hooks = advice_hooks(host);
        hooks.continuation = continuation;
        const auto observer = std::make_shared<launch::JsonObserver>(job.size(), plan.config().archive);
        if (parsed.flag("json")) hooks.observer = observer;
        const TrainerResult result = run_training(plan, job, signals.request(), hooks, samples ? &*samples : nullptr);
        if (result == TrainerResult::paused) return exit_paused;
        observer->nothing_left();
        if (result != TrainerResult::finished) return exit_stopped;
        if (job.rank() == 0 && !plan.config().archive.empty()) print_residual(plan.config().archive);
        return 0;
      },
      restarts);
}

}  // namespace

constinit const Command train_command{
    .name = "train",
    .summary = "train a model",
    .usage = "--model NAME [OPTIONS] [--<part>.<option> VALUE]...",
    .own = train_options,
    .notes = "Options of parts: consist plugins NAME; ",  // in one line with the example: the help fits a screen
    .example = "consist train --model qwen3-tiny --ranks 2 --archive run.h5\n",
    .takes = Takes::all,
    .is_of_runs = true,
    .run = train};

}  // namespace consist::commands
