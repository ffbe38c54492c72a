// consist tune: searches for the fastest configuration of a machine.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/text.h"
#include "core/base/split.h"
#include "core/config/option_value.h"
#include "core/config/price.h"
#include "core/plan/machine_choice.h"
#include "core/plan/plan.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_output.h"
#include "launch/cli/plugin_options.h"
#include "launch/cli/run_options.h"
#include "launch/cluster/cluster.h"
#include "launch/cluster/options.h"
#include "launch/cluster/shell.h"
#include "launch/commands/commands.h"
#include "launch/compare/lists.h"
#include "launch/predict/failure_options.h"
#include "launch/search/tune/device_here.h"
#include "launch/search/tune/fit.h"
#include "launch/search/tune/measure.h"
#include "launch/search/tune/search.h"
#include "launch/search/tune/table.h"
#include "launch/start/noted_signals.h"

namespace consist::commands {
namespace {

using enum OptionKind;
using Json = nlohmann::ordered_json;

constexpr RunOption tune_options[] = {
    launch::on_option,
    launch::cluster_option,
    valued("measure", integer, "3", "N",
           "runs of the best N here, if the device here is of the machine that is searched for, or as jobs (--on): all for 10 "
           "steps, the better half for 30, and so on",
           "0.."),
    valued("objective", choice, "tokens", "O",
           "tokens: the most tokens per second; memory: the least memory; cost: the lowest --price of a billion "
           "tokens, which of equally many ranks the fastest has; energy: the fewest joules by the power of the machine's file",
           "tokens|memory|cost|energy"),
    valued("search-seconds", integer, "60", "S", "time limit of the search, which ends by itself when it has converged", "1.."),
    valued("fit", choice, "", "batch|sequence",
           "the largest global batch of one micro-batch, instead of --global-batch; or the longest sequence, "
           "instead of --sequence: a multiple of 1,024 up to the model's positions",
           "batch|sequence"),
    valued("configurations", integer, "100", "N", "are simulated at most, of those that are estimated to be the best", "1.."),
    a_switch("exhaustive", "every combination of the options, each planned whole: for small models alone"),
    valued("rows", integer, "10", "N", "rows of the table", "1.."),
    launch::mtbf_option,
    launch::restart_option,
    launch::storage_option,
};
constexpr TakenOption tune_takes[] = {
    {"transport",
     "auto: the fastest that the machine's file has, within a node and between nodes; one is fixed; several (nvlink,socket; "
     "nvlink+ddp=efa,socket) are searched, too"},
    {"machine", "machine to search for: h200 (the default), h100, a100, l40s, cpu or a file of consist calibrate"},
};

/// `price`, `machine` and `power`: of the search.
launch::Objective objective_of(const ParsedRun& parsed, const std::string& price, const std::string& machine,
                               const Power& power) {
  const std::string objective = parsed.value("objective");
  if (objective == "energy" && !power.is_known())
    throw UsageError("--objective is 'energy', but the file of the machine " + machine +
                     " has no power: choose tokens, memory or cost, give the watts of its devices (--machine " + machine +
                     ",power=W,idle-power=W), or let consist compare measure the joules per token of runs (docs/metrics.md)");
  if (objective == "energy") return launch::Objective::energy;
  if (objective == "cost" && !Price(price).of(machine, ""))
    throw UsageError(price.empty() ? "--objective is 'cost', but no --price of a GPU and hour is given"
                                   : "--objective is 'cost', but --price " + price + " has none for the machine " + machine);
  return objective == "memory" ? launch::Objective::memory : launch::Objective::tokens;
}

/// The one that was measured to be the fastest; without measurements, or for another objective, the first that did not fail.
const launch::Candidate& winner_of(const std::vector<launch::Candidate>& candidates, launch::Objective objective) {
  const auto fastest = std::min_element(candidates.begin(), candidates.end(), launch::measured_before);
  if (objective == launch::Objective::tokens && fastest->measured > 0) return *fastest;
  const auto sound = std::find_if(candidates.begin(), candidates.end(), [](const auto& c) { return c.problem.empty(); });
  return sound == candidates.end() ? candidates.front() : *sound;
}

/// Makes what --fit names as large as fits, and says so. Returns the options to train with it: "--sequence 65536 ".
std::string fit(launch::SearchRequest& request, const ParsedRun& parsed, PluginHost& host) {
  const std::string what = parsed.value("fit");
  const auto refuse_beside = [&](const char* option) {
    if (parsed.has(option))
      throw UsageError("--fit " + what + " looks for what --" + option + " would state; leave one of them out");
  };
  if (what == "batch") {
    for (const char* option : {"global-batch", "batch", "accumulation"}) refuse_beside(option);
    launch::fit_batch(request, host);
    const std::string options = "--global-batch " + std::to_string(request.config.global_batch) + " --accumulation 1 ";
    std::printf("The largest batch that fits in one micro-batch: %s\n", options.c_str());
    return options;
  }
  if (request.config.global_batch == 0)
    throw UsageError(
        "--global-batch is missing: the sequences of a step, which all configurations have in common; or --fit batch");
  if (what.empty()) return {};
  refuse_beside("sequence");
  launch::fit_sequence(request, host);
  const std::string options = "--sequence " + std::to_string(request.config.sequence) + " ";
  std::printf("The longest sequence that fits: %s\n", options.c_str());
  return options;
}

/// The command that trains with `candidate`; a run elsewhere could come to other transports than those that were planned, which
/// it therefore names. `fitted`: what --fit found.
std::string command_of(const launch::Candidate& candidate, const CommandLine& line, const std::string& fitted) {
  const std::string& transports = candidate.prediction.transports;
  launch::Choices choices = candidate.choices;
  if (!transports.empty()) {
    std::erase_if(choices, [](const launch::Choice& choice) { return choice.option == "transport"; });
    choices.push_back({"transport", transports});
  }
  std::string command = "consist train";
  for (const char* option : {"on", "cluster"}) {
    if (line.has(option)) command += std::string(" --") + option + " " + launch::shell_word(line.value(option));
  }
  std::set<std::string> left_out{"json"};
  if (!transports.empty() || !line.is_on_command_line("transport")) left_out.insert("transport");
  for (const std::string& word : words_of_others(line, left_out)) command += " " + word;
  return command + " " + fitted + launch::text_of(choices);
}

/// Why the winner is faster than the best of another strategy, and the command to train with it, which has `fitted`.
void recommend(const launch::SearchResult& result, launch::Objective objective, const CommandLine& line,
               const std::string& fitted) {
  const launch::Candidate& winner = winner_of(result.candidates, objective);
  const auto strategy_of = [](const launch::Candidate& candidate) {
    return candidate.choices.empty() ? std::string() : candidate.choices.front().value;
  };
  const auto other = std::find_if(result.candidates.begin(), result.candidates.end(), [&](const launch::Candidate& candidate) {
    return strategy_of(candidate) != strategy_of(winner);
  });
  const auto say_why = [&](const launch::Candidate& candidate) {
    std::printf("Beside '%s' the winner has %s.\n", launch::text_of(candidate.choices).c_str(),
                launch::why(winner, candidate).c_str());
  };
  if (other != result.candidates.end()) say_why(*other);
  const auto other_transport = std::find_if(result.candidates.begin(), result.candidates.end(), [&](const auto& candidate) {
    return transports_text(candidate.config) != transports_text(winner.config);
  });
  if (other_transport != result.candidates.end() && other_transport != other) say_why(*other_transport);
  if (winner.changes_numerics)
    std::printf("Nothing fits that keeps the numerics: the configurations above round in another way.\n");
  std::printf("Train with it:\n  %s\n", printable(command_of(winner, line, fitted)).c_str());
  if (!result.other_numerics) return;
  const launch::Candidate& other_numerics = *result.other_numerics;
  std::printf(
      "With other numerics, which may round what is trained in another way, predicted to take %s ms and %s (%s ms and %s "
      "above):\n  %s\n",
      fixed_text(other_numerics.prediction.time.seconds * 1e3, 2).c_str(),
      bytes_text(other_numerics.prediction.most_bytes()).c_str(),
      fixed_text(result.candidates.front().prediction.time.seconds * 1e3, 2).c_str(),
      bytes_text(result.candidates.front().prediction.most_bytes()).c_str(), launch::text_of(other_numerics.choices).c_str());
}

/// Takes a list of transports, written as compare takes it, out of the command line: "nvlink,socket", "nvlink+ddp=efa,socket".
/// Leaves in place a value that one run can have.
std::vector<std::string> take_transports(CommandLine& line) {
  const std::string list = line.text("transport");
  const std::vector<std::string_view> parts = split(list, ',');
  const auto of_all =
      std::count_if(parts.begin(), parts.end(), [](std::string_view part) { return part.find('=') == part.npos; });
  if (of_all < 2 && list.find('+') == std::string::npos) return {};
  line.given.erase("transport");
  std::vector<std::string> transports;
  for (const auto& [shown, value] : launch::read_list("transport", list, launch::ListRule::commas).values)
    transports.push_back(value);
  return transports;
}

/// Throws UsageError for a plugin that is not there.
void check_names(const std::vector<std::string>& transports, PluginHost& host) {
  for (const std::string& transport : transports) {
    RunConfig config;
    parse_transports(transport, config);
    for (const std::string& name : named_transports(config)) host.find("transport", name);
  }
}

/// Runs the best here, if the machine is the one that was searched for, or on the cluster.
void measure_the_best(launch::SearchResult& result, std::size_t count, const launch::SearchRequest& request, PluginHost& host,
                      const std::vector<std::string>& plugins, const std::shared_ptr<const launch::Cluster>& cluster) {
  if (count == 0) return;
  const std::string reason = cluster ? "" : launch::reason_not_to_measure(*request.machine, request.config, host);
  if (!reason.empty()) {
    std::printf("Nothing is measured: %s.\n", printable(reason).c_str());
    return;
  }
  launch::note_signals();
  std::vector<launch::Candidate*> best;
  for (std::size_t n = 0; n < std::min(count, result.candidates.size()); ++n) best.push_back(&result.candidates[n]);
  const std::unique_ptr<launch::RowRunner> runner =
      cluster ? launch::make_cluster_runner("tune", cluster, host, plugins) : launch::make_local_runner(host, plugins);
  launch::measure(best, host, *runner);
}

Json row_of(const launch::Candidate& candidate, const CommandLine& line, const std::string& fitted, const launch::RowRates& rates,
            const Machine& machine) {
  const auto known = [](std::optional<double> value) { return value ? Json(*value) : Json(); };
  Json options = Json::object();
  for (const launch::Choice& choice : candidate.choices) options[choice.option] = choice.value;
  const StepTime& time = candidate.prediction.time;
  const auto known_ms = [](std::optional<double> seconds) { return seconds ? Json(1e3 * *seconds) : Json(); };
  const launch::Costs costs = launch::costs_of(candidate, rates);
  return {{"options", options},
          {"command", command_of(candidate, line, fitted)},
          {"predicted_ms", 1e3 * time.seconds},
          {"predicted_low_ms", known_ms(time.low())},
          {"predicted_high_ms", known_ms(time.high())},
          {"measured_ms", candidate.measured > 0 ? Json(candidate.measured * 1e3) : Json(nullptr)},
          {"measured_steps", candidate.measured_steps},
          {"tokens_per_second", candidate.prediction.tokens_per_second},
          {"mfu", candidate.prediction.model_flops_utilization},
          {"cost_per_billion_tokens", known(costs.per_billion_tokens)},
          {"joules_per_billion_tokens", known(costs.joules_per_billion_tokens)},
          {"goodput", rates.failures ? json_of(goodput_of(candidate, rates, machine)) : Json()},
          {"device_bytes", candidate.prediction.most_bytes()},
          {"capacity_bytes", candidate.prediction.capacity > 0 ? Json(candidate.prediction.capacity) : Json(nullptr)},
          {"best_for_memory", candidate.best_for_memory},
          {"on_frontier", candidate.on_frontier},
          {"changes_numerics", candidate.changes_numerics},
          {"problem", candidate.problem.empty() ? Json(nullptr) : Json(candidate.problem)}};
}

Json json_of(const launch::OptionSteps& option) {
  Json steps = Json::array();
  for (const launch::OptionStep& step : option.steps)
    steps.push_back({{"value", step.value},
                     {"loss", step.fits ? Json(step.loss) : Json()},
                     {"fits", step.fits},
                     {"simulated", step.fits && step.is_simulated}});
  return {{"option", option.option}, {"value", option.value}, {"shape", name_of(option.shape())}, {"steps", steps}};
}

/// The last event of --json: what was searched, and the candidates in their order.
void print_result(const launch::SearchResult& result, const launch::SearchRequest& request, const CommandLine& line,
                  const std::string& fitted, const launch::RowRates& rates) {
  Json event{{"event", "result"},
             {"rows", Json::array()},
             {"winner", nullptr},
             {"around", Json::array()},
             {"other_rates", Json::array()},
             {"estimated", result.estimated},
             {"simulated", result.simulated},
             {"too_large", result.too_large},
             {"refused", result.refused},
             {"seconds", result.seconds},
             {"converged", result.has_converged()}};
  for (const launch::Candidate& candidate : result.candidates)
    event["rows"].push_back(row_of(candidate, line, fitted, rates, *request.machine));
  if (!result.candidates.empty()) event["winner"] = &winner_of(result.candidates, request.objective) - result.candidates.data();
  for (const launch::OptionSteps& option : result.around) event["around"].push_back(json_of(option));
  for (const launch::OtherRates& other : result.other_rates)
    event["other_rates"].push_back({{"change", other.change}, {"best", other.best}, {"gain", other.gain}});
  launch::print_event(event);
}

/// The first event of --json.
void print_search(const launch::SearchRequest& request) {
  launch::print_event({{"event", "search"},
                       {"version", 1},
                       {"machine", request.machine->name},
                       {"ranks", request.config.ranks},
                       {"global_batch", request.config.global_batch},
                       {"sequence", request.config.sequence},
                       {"expert_load", rated_load(request.config.expert_load)}});
}

int tune_config(const ParsedRun& parsed, PluginHost& host, RunConfig config, const std::vector<std::string>& transports) {
  for (const std::string& note : config.notes) std::fprintf(stderr, "%s\n", printable(note).c_str());
  std::shared_ptr<const launch::Cluster> cluster;
  if (launch::is_on_cluster(parsed)) {
    cluster = launch::make_cluster(parsed);
    if (!parsed.has("ranks")) config.ranks = cluster->settings().ranks();
  }
  launch::SearchRequest request{.config = std::move(config)};
  // Options that the command line does not give are searched: for a file that recomputes some layers, which layers, too.
  if (!parsed.has("recompute")) {
    request.config.recompute.first_layer = 0;
    request.config.recompute.last_layer = -1;
  }
  check_names(transports, host);
  std::vector<std::string> said_already;
  for (const auto& [owner, options] : read_plugin_options(parsed.rest, host, said_already)) request.given_parts.insert(owner);
  request.transports = transports;
  request.settled = {parsed.has("strategy"), parsed.has("batch") || parsed.has("accumulation"), parsed.has("recompute"),
                     parsed.has(launch::offload_option)};
  request.machine = machine_named(request.config.machine);
  request.power = power_named(request.config.machine);
  const std::string machine_name = request.machine->name.substr(0, request.machine->name.find(','));
  request.objective = objective_of(parsed, request.config.price, machine_name, request.power);
  const launch::RowRates rates{Price(request.config.price).of(machine_name, ""), request.power, launch::failure_model_of(parsed)};
  const std::string fitted = fit(request, parsed, host);
  request.most_simulated = static_cast<std::size_t>(parsed.integer("configurations"));
  request.exhaustive = parsed.flag("exhaustive");
  request.rows = static_cast<std::size_t>(std::max(parsed.integer("rows"), parsed.integer("measure")));
  request.most_seconds = static_cast<double>(parsed.integer("search-seconds"));
  const bool terminal = isatty(STDERR_FILENO) != 0;
  print_search(request);
  if (terminal || parsed.flag("json")) {
    request.progress = [terminal](const std::string& text) {
      launch::print_event({{"event", "progress"}, {"text", text}});
      if (!terminal) return;
      std::fprintf(stderr, "\r\033[K%.110s", printable(text).c_str());
      std::fflush(stderr);
    };
  }
  launch::SearchResult result = launch::search(request, host);
  if (terminal) std::fputs("\r\033[K", stderr);
  std::fputs(launch::extent_of(result, printable(request.machine->name)).c_str(), stdout);
  if (request.config.expert_load != natural_experts)
    std::printf("Experts' load: %s\n", printable(request.config.expert_load).c_str());
  if (result.candidates.empty()) {
    print_result(result, request, parsed, fitted, rates);
    std::printf("%s", result.ended_early ? "None was found that fits: give more --search-seconds.\n"
                                         : "None fits: more ranks, or a smaller --sequence, would.\n");
    return exit_failed;
  }

  measure_the_best(result, static_cast<std::size_t>(parsed.integer("measure")), request, host, plugin_paths(parsed), cluster);
  // That all draw the limit says nothing that the time does not say: it is shown where it was asked for.
  launch::RowRates shown = rates;
  if (request.objective != launch::Objective::energy && request.power.is_bound()) shown.power = {};
  const auto rows = static_cast<std::size_t>(parsed.integer("rows"));
  const std::string table = launch::table_of(result, rows, shown, *request.machine) + launch::sharpness_text(result);
  std::fputs(printable(table).c_str(), stdout);
  recommend(result, request.objective, parsed, fitted);
  print_result(result, request, parsed, fitted, rates);
  return 0;
}

int tune(const CommandLine& given) {
  CommandLine line = given;
  const std::vector<std::string> transports = take_transports(line);
  return planning_command(line, [&](const ParsedRun& parsed, PluginHost& host, RunConfig config) {
    return tune_config(parsed, host, std::move(config), transports);
  });
}

}  // namespace

constinit const Command tune_command{
    .name = "tune",
    .summary = "search for the fastest configuration of a machine",
    .usage = "--model NAME --ranks N --global-batch B [OPTIONS of train] [--machine M]",
    .about =
        "Searches for the fastest way to train: strategies and how the ranks are divided between them, micro-batch and\n"
        "accumulation, recomputation, and the options that the plugins call tunable (consist plugins NAME): schedules of\n"
        "pipelines, buckets, prefetch, sharding, offload. Thousands are estimated by steps of a few layers, the best hundred\n"
        "simulated with few micro-batches, the best ten whole, with the machine's figures; the best N are then run. Options\n"
        "that are given are fixed. Training stays as it is but for the order of sums; what other dtypes of gradients and\n"
        "states would gain is said apart.\n",
    .own = tune_options,
    .notes =
        "Prints the table, the Pareto front, what one step away costs, why the winner is better, and the command to train.\n"
        "All options of train are taken: consist train --help\n",
    .example = "consist tune --model llama-3-8b --ranks 8 --global-batch 64 --sequence 4096 --precision bf16 --measure 0\n",
    .takes = Takes::all,
    .taken = tune_takes,
    .run = tune};

}  // namespace consist::commands
