// consist advise: configurations that are faster and fit, each planned and simulated; nothing is run.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/host.h"
#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/plan/plan.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_output.h"
#include "launch/cli/run_options.h"
#include "launch/commands/commands.h"
#include "launch/predict/remedies.h"
#include "launch/search/advise/advice.h"

namespace consist::commands {
namespace {

constexpr TakenOption advise_takes[] = {
    {"json", "the same as JSON (docs/predict.md)"},
    {"machine", "h200 (the default), h100, a100, l40s, cpu, or a file of consist calibrate (docs/machines.md)"}};

nlohmann::ordered_json json_of(const launch::Advice& advice) {
  return {{"options", advice.options},
          {"speed", advice.speed},
          {"device_bytes", advice.bytes},
          {"caution", advice.alternative.caution}};
}

/// Advice, and what of it goes together.
struct Found {
  std::vector<launch::Advice> advice, same_training, all;
};

std::string json_of(const launch::Prediction& base, const Found& found, const Machine& machine) {
  nlohmann::ordered_json json{{"version", 1},
                              {"machine", machine.name},
                              {"step_seconds", base.time.seconds},
                              {"tokens_per_second", base.tokens_per_second},
                              {"device_bytes", base.most_bytes()},
                              {"advice", nlohmann::ordered_json::array()},
                              {"together_same_training", nullptr},
                              {"together", nullptr}};
  for (const launch::Advice& one : found.advice) json["advice"].push_back(json_of(one));
  if (!found.same_training.empty()) json["together_same_training"] = json_of(found.same_training.front());
  if (!found.all.empty()) json["together"] = json_of(found.all.front());
  return json.dump(2) + "\n";
}

std::string base_text(const launch::Prediction& base, const Machine& machine) {
  std::string text = "As it is: " + si_text(base.tokens_per_second) + " tokens/s, a step of " +
                     milliseconds_text(base.time.seconds) + ", " + bytes_text(base.most_bytes());
  if (base.capacity > 0) text += " of " + bytes_text(base.capacity);
  text += "; predicted for " + machine.name + ", not measured.\n";
  if (!base.links.empty()) text += "Links: " + text_of(base.links) + ".\n";
  return text + "Error " + text_of(base.time.error) + ".\n" + launch::scope_text(machine.name);
}

int advise_config(const ParsedRun& parsed, PluginHost& host, RunConfig config) {
  const Plan plan = plan_run(std::move(config), host, {nullptr, nullptr, false});
  const Machine& machine = *plan.target().machine;
  for (const std::string& note : plan.config().notes) std::fprintf(stderr, "%s\n", printable(note).c_str());
  const launch::Prediction base = launch::predict(plan, usable_cores());
  if (!base.fits()) {
    const std::string refusal = launch::refusal_of(plan, host, base);
    std::fputs(printable(refusal).c_str(), stdout);
    launch::print_error_event(refusal, exit_failed);
    return exit_failed;
  }

  const launch::AdviceRequest request{.room = launch::room_of(machine), .limits = {.threads = usable_cores()}};
  Found found{.advice = launch::advise(plan, host, base, request)};
  const std::vector<launch::Advice> same = launch::without_caution(found.advice);
  found.same_training = launch::together(plan, host, base, same, request);
  if (same.size() < found.advice.size()) found.all = launch::together(plan, host, base, found.advice, request);
  if (parsed.flag("json")) {
    launch::print_json(json_of(base, found, machine));
    return 0;
  }
  std::fputs(printable(base_text(base, machine) + unknown_text(base.links)).c_str(), stdout);
  for (const launch::Advice& one : found.advice) std::printf("  %s\n", printable(text_of(one)).c_str());
  if (found.advice.empty()) std::printf("No alternative that was tried fits and is 2%% faster.\n");
  for (const launch::Advice& one : found.same_training)
    std::printf("Together, the training as it is:\n  %s\n", printable(text_of(one)).c_str());
  for (const launch::Advice& one : found.all) std::printf("All together:\n  %s\n", printable(text_of(one)).c_str());
  return 0;
}

}  // namespace

constinit const Command advise_command{
    .name = "advise",
    .summary = "say what would make a configuration faster on a machine; nothing is run",
    .usage = "--model NAME [OPTIONS of train] [--machine M] [--json]",
    .about =
        "Says what would make this configuration faster on a machine: other precisions, strategies and their options,\n"
        "recomputation, micro-batches, batches. Each alternative is compiled and simulated; it is said if it fits and is at\n"
        "least 2% faster (tokens/s), with what it costs in memory and what else it changes. Nothing is run.\n",
    .notes =
        "Returns 1 if the configuration does not fit the machine's memory, and then prints changes that make it fit.\n"
        "All options of train are taken: consist train --help. consist tune searches all configurations of a model instead.\n",
    .example = "consist advise --model qwen3-0.6b --strategy zero2 --ranks 4 --batch 4 --sequence 4096 --machine h200\n",
    .takes = Takes::all,
    .taken = advise_takes,
    .run = [](const CommandLine& line) { return planning_command(line, advise_config); }};

}  // namespace consist::commands
