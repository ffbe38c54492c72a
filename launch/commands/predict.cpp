// consist predict: a step's time, the parts of it, and its memory, on a machine that need not be present.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "consist/host.h"
#include "consist/text.h"
#include "core/plan/found_model.h"
#include "core/plan/machine_choice.h"
#include "core/plan/plan.h"
#include "core/record/step_trace.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_output.h"
#include "launch/cli/run_options.h"
#include "launch/commands/commands.h"
#include "launch/predict/failure_options.h"
#include "launch/predict/goodput.h"
#include "launch/predict/prediction.h"
#include "launch/predict/remedies.h"
#include "launch/predict/simulated_trace.h"

namespace consist::commands {
namespace {

constexpr RunOption predict_options[] = {
    launch::mtbf_option,
    launch::restart_option,
    launch::storage_option,
};
constexpr TakenOption predict_takes[] = {
    {"json", "the same as JSON (docs/predict.md)"},
    {"transport",
     "T, or T1+a=T2 by strategy or axis: whose links of the machine's file steps are rated by; auto is the fastest that the file "
     "has, within a node and between nodes, as in a run"},
    {"machine",
     "h200 (the default), h100, a100, l40s, cpu, or a file of consist calibrate; figures behind commas replace its own "
     "(docs/machines.md): --machine h200,network=100e9,capacity=80e9"},
    {"trace", "writes the simulated step as a timeline of all stages for Perfetto"},
};

std::string title_of(const RunConfig& config) {
  return model_text(config) + ", " + text_of(config.strategies) + " on " + std::to_string(config.ranks) +
         (config.ranks == 1 ? " rank, " : " ranks, ") + config.precision + ", " + std::to_string(config.batch) +
         (config.accumulation > 1 ? " x " + std::to_string(config.accumulation) : std::string()) + " x " +
         std::to_string(config.sequence) + " tokens per rank of the batch\n";
}

int predict_config(const ParsedRun& parsed, PluginHost& host, RunConfig config) {
  const std::optional<launch::FailureModel> failures = launch::failure_model_of(parsed);
  const Output trace{"--trace", config.trace, config.overwrite};
  if (!trace.path.empty()) check_output(trace);
  const Plan plan = plan_run(std::move(config), host, {.device = nullptr, .machine = nullptr});
  for (const std::string& note : plan.config().notes) std::fprintf(stderr, "%s\n", printable(note).c_str());
  const std::vector<PlannedRank> ranks = plan.ranks(0, usable_cores());
  const Simulation simulation = simulate(ranks);
  const launch::Prediction prediction = launch::predict(plan, ranks, simulation);
  if (!trace.path.empty()) write_trace_file(trace, launch::simulated_events(programs_of(ranks), simulation));
  const Power power = power_named(plan.config().machine);
  std::optional<launch::Goodput> with_failures;
  if (failures) with_failures = launch::goodput_of(prediction, plan.config(), *plan.target().machine, *failures);
  if (parsed.flag("json")) {
    nlohmann::ordered_json document = json_of(prediction, plan, power);
    document["expert_load"] = rated_load(plan.config().expert_load);
    document["goodput"] = with_failures ? json_of(*with_failures) : nlohmann::ordered_json();
    launch::print_document(document);
    return prediction.fits() ? 0 : exit_failed;
  }
  if (plan.experts()) std::printf("Experts' load: %s\n", printable(plan.experts()->text()).c_str());
  std::printf("%s%s", printable(title_of(plan.config())).c_str(), printable(text_of(prediction, plan, power)).c_str());
  if (with_failures) std::fputs(printable(text_of(*with_failures)).c_str(), stdout);
  if (prediction.fits()) return 0;
  std::fputs(printable(launch::refusal_of(plan, host, prediction)).c_str(), stdout);
  return exit_failed;
}

}  // namespace

constinit const Command predict_command{
    .name = "predict",
    .summary = "predict a step's time and memory on a machine that need not be present",
    .usage = "--model NAME [OPTIONS of train] [--machine M] [--json]",
    .about =
        "Predicts a step of this configuration on a machine, without a device: its time, tokens/s, MFU, the memory of the\n"
        "ranks of each pipeline stage, the parts of its time, and its critical path. The configuration is compiled as for\n"
        "a run, and its programs are simulated with the machine's figures.\n",
    .own = predict_options,
    .notes =
        "Returns 1 if the plan does not fit the machine's memory, and then prints changes that make it fit.\n"
        "All options of train are taken: consist train --help\n",
    .example = "consist predict --model llama-3-8b --strategy zero3-offload --ranks 8 --precision bf16 --sequence 8192\n",
    .takes = Takes::all,
    .taken = predict_takes,
    .run = [](const CommandLine& line) { return planning_command(line, predict_config); }};

}  // namespace consist::commands
