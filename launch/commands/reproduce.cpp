// consist reproduce: whether a published speed is what its recipe is predicted to reach, and what is missing to it.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "consist/error.h"
#include "consist/text.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_output.h"
#include "launch/cli/run_options.h"
#include "launch/commands/commands.h"
#include "launch/predict/remedies.h"
#include "launch/search/reproduce/reproduction.h"

namespace consist::commands {
namespace {

constexpr RunOption reproduce_options[] = {
    valued("published", OptionKind::text, "", "SPEED",
           "the published number: tokens/s per GPU (14451), model TFLOP/s per GPU (744T), or the time of a step (3.8s, 843ms)"),
    valued(
        "counting", OptionKind::choice, "causal", "C",
        "how a published FLOP/s counts a model's FLOPs: causal (Megatron), full (torchtitan), causal-body (without the LM head), "
        "parameters",
        "causal|full|causal-body|parameters"),
    valued("advise-seconds", OptionKind::real, "30", "SECONDS",
           "none of the changes that could reach the number is tried after so long; 0: no limit", "0.."),
};
constexpr TakenOption reproduce_takes[] = {
    {"json", "the same as JSON (docs/reproduce.md)"},
    {"machine",
     "the machine of the published run: h200 (the default), h100, a100, l40s, cpu, or a file, with figures behind commas "
     "(docs/machines.md)"},
    {"ranks", "the number of GPUs, where the file leaves it open"},
    {"model", "the model, where the file leaves it open"},
    {"from-set", "replaces a value of the file: KEY=VALUE; KEY=null leaves it out"},
};

int reproduce_config(const ParsedRun& parsed, PluginHost& host, RunConfig config) {
  const launch::Published published = launch::read_published(parsed.text("published"));
  const Plan plan = plan_run(std::move(config), host, {nullptr, nullptr, false});
  for (const std::string& note : plan.config().notes) std::fprintf(stderr, "%s\n", printable(note).c_str());
  const launch::Reproduction found =
      launch::reproduce(plan, host, published, parsed.value("counting"), parsed.real("advise-seconds"));
  if (parsed.flag("json")) {
    launch::print_document(json_of(found, plan));
  } else {
    std::string text = text_of(found, plan);
    if (!found.prediction.fits()) text += launch::refusal_of(plan, host, found.prediction);
    std::fputs(printable(text).c_str(), stdout);
  }
  switch (found.outcome()) {
    case launch::Outcome::explained:
      return 0;
    case launch::Outcome::not_explained:
      return exit_failed;
    case launch::Outcome::unclear:
      break;
  }
  return exit_unclear;
}

/// As predict with --from FILE. Files that cannot be read are bad input: status 1 is for a number that is not explained.
int reproduce(const CommandLine& line) {
  // Words of a command that takes options of parts are all in `rest`: the file is in front of them.
  if (line.rest.empty() || line.rest.front().starts_with('-'))
    throw UsageError("name one file of another trainer, in front of the options (see consist reproduce --help)");
  const std::string& file = line.rest.front();
  if (!line.has("published")) throw UsageError("give the published number: --published 14451 (see consist reproduce --help)");
  if (line.has("from")) throw UsageError("--from " + line.text("from") + " is given beside the file " + file);
  CommandLine with_file = line;
  with_file.given["from"] = {"--from", {file}};
  with_file.rest.erase(with_file.rest.begin());
  try {
    return planning_command(with_file, reproduce_config);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

constinit const Command reproduce_command{
    .name = "reproduce",
    .summary = "say whether a recipe is predicted to reach its published speed, and what is missing to it",
    .usage = "FILE --published SPEED [--ranks N] [--machine M] [OPTIONS of train] [--json]",
    .about =
        "Reads a recipe of another trainer, as consist import does, predicts its step on the machine, and holds the published\n"
        "speed against the interval of the prediction. It says what the prediction takes for granted of the measurement (FLOPs,\n"
        "data, balance of experts, clock, network, versions), what a published FLOP/s means in tokens/s by each way to count,\n"
        "and what is missing to the number: waiting that would have to vanish, the share of the peak that products would have\n"
        "to reach beside what the machine's file thinks possible, and the changes of consist advise. Nothing is run.\n",
    .own = reproduce_options,
    .notes =
        "Returns 0 if the number lies within the interval, 1 if not or if the plan does not fit the machine's memory, 3 if it\n"
        "cannot be told because no step of that kind was measured, 2 for bad input.\n"
        "All options of train are taken; they take precedence over the file.\n",
    .example = "consist reproduce llama3_8b.toml --published 5762 --ranks 8 --machine h100\n",
    .operand = "FILE",
    .takes = Takes::all,
    .taken = reproduce_takes,
    .run = reproduce};

}  // namespace consist::commands
