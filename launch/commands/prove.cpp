// consist prove: a layout trains as one rank does, shown in fp64 on this machine.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "consist/error.h"
#include "consist/host.h"
#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/plan/found_model.h"
#include "core/prove/proof.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_output.h"
#include "launch/cli/run_options.h"
#include "launch/commands/commands.h"

namespace consist::commands {
namespace {

using Json = nlohmann::ordered_json;
using prove::Proof;

constexpr std::size_t most_shown = 8;  // differences of one statement

constexpr RunOption prove_options[] = {
    a_switch(
        "small-only",
        "leaves out the order of collectives and memory of the programs in full size, which a large model takes seconds for"),
    valued("order", OptionKind::integer, "1", "N",
           "chooses the order in which ranks and queues run, among those that the programs allow", "0.."),
};
constexpr TakenOption prove_takes[] = {
    {"machine", "the machine to plan for: h200 (the default), h100, a100, l40s, cpu or a file (docs/machines.md)"},
    {"json", "the proof as JSON (docs/prove.md)"},
};

std::string title(const Plan& plan) {
  const RunConfig& config = plan.config();
  return text_of(config.strategies) + " on " + std::to_string(config.ranks) + (config.ranks == 1 ? " rank" : " ranks") + " in " +
         config.precision + ", of " + model_text(config);
}

/// An instruction of many tensors fills a screen.
std::string shortened(const std::string& instruction) {
  constexpr std::size_t most = 400;
  return instruction.size() <= most ? instruction : instruction.substr(0, most) + "...";
}

std::string first_text(const prove::FirstDifference& first) {
  char numbers[120];
  std::snprintf(numbers, sizeof numbers, "%.9g, one rank has %.9g", first.found, first.expected);
  std::string text = "The first value that differs in a step: '" + first.tensor + "', " + numbers + "\n  " +
                     shortened(first.instruction) + "\n  made by op " + first.op + ", " +
                     (first.pass.empty() ? std::string("of the model itself") : "which " + first.pass + " put there") +
                     ", on rank " + std::to_string(first.rank);
  if (first.layer >= 0) text += ", layer " + std::to_string(first.layer);
  if (first.micro_batch >= 0) text += ", micro-batch " + std::to_string(first.micro_batch);
  text += "\n";
  for (const std::string& input : first.inputs_from) text += "  from " + shortened(input) + "\n";
  return text;
}

std::string text_of(const Plan& plan, const Proof& proof) {
  std::string text = title(plan) + "\nin fp64 beside one rank, with a small model (" + proof.sizes + ") on the same mesh\n\n";
  for (const std::string& note : proof.notes) text += note + "\n";
  for (const prove::Statement& s : proof.statements) {
    char line[60];
    std::snprintf(line, sizeof line, "%-7s %-12s %6.1f s  ", s.wrong.empty() ? "holds" : "WRONG", s.name.c_str(), s.seconds);
    text += line + s.text + "\n";
    for (std::size_t n = 0; n < s.wrong.size() && n < most_shown; ++n) text += "  " + s.wrong[n] + "\n";
    if (s.wrong.size() > most_shown) text += "  and " + std::to_string(s.wrong.size() - most_shown) + " more\n";
  }
  if (proof.first) text += "\n" + first_text(*proof.first);
  return text + (proof.holds() ? "\nequal: this layout trains as one rank does\n"
                               : "\nDIFFERENT: this layout does not train as one rank does\n");
}

Json json_of(const prove::FirstDifference& first) {
  return {{"tensor", first.tensor},
          {"op", first.op},
          {"pass", first.pass},
          {"rank", first.rank},
          {"layer", first.layer},
          {"micro_batch", first.micro_batch},
          {"found", first.found},
          {"expected", first.expected},
          {"instruction", first.instruction},
          {"inputs_from", first.inputs_from}};
}

Json json_of(const Plan& plan, const Proof& proof) {
  const RunConfig& config = plan.config();
  Json document{{"version", 1},
                {"equal", proof.holds()},
                {"model", model_text(config)},
                {"strategy", text_of(config.strategies)},
                {"precision", config.precision},
                {"ranks", config.ranks},
                {"small_model", proof.sizes},
                {"notes", proof.notes},
                {"statements", Json::array()},
                {"first_difference", proof.first ? json_of(*proof.first) : Json(nullptr)}};
  for (const prove::Statement& s : proof.statements)
    document["statements"].push_back(
        {{"name", s.name}, {"holds", s.wrong.empty()}, {"text", s.text}, {"wrong", s.wrong}, {"seconds", s.seconds}});
  return document;
}

int prove_config(const ParsedRun& parsed, PluginHost& host, RunConfig config) {
  const Plan plan = plan_run(std::move(config), host);
  const Proof proof = prove::prove(plan, {.full_size = !parsed.flag("small-only"),
                                          .order = static_cast<std::uint64_t>(parsed.integer("order")),
                                          .threads = usable_cores()});
  if (parsed.flag("json")) {
    launch::print_document(json_of(plan, proof));
  } else {
    std::fputs(printable(text_of(plan, proof)).c_str(), stdout);
  }
  return proof.holds() ? 0 : exit_failed;
}

}  // namespace

constinit const Command prove_command{
    .name = "prove",
    .summary = "prove in fp64 that a layout trains as one rank does, with all its ranks in this process",
    .usage = "--model NAME [OPTIONS of train]",
    .about =
        "Shrinks the model, keeps the mesh and what decides how ranks share the work, and runs the programs of all ranks in\n"
        "fp64 in one process: losses, every gradient, parameters and states over three steps, an evaluation, and a checkpoint\n"
        "that this layout, one rank and another layout resume must equal those of one rank to 1e-9. Then the order of\n"
        "collectives and of memory is proven, of the small programs and of those in full size. No GPU, no data and no weights\n"
        "are needed.\n"
        "The exit status is 0 if all of it holds, 1 if not; then the first value that differs is named, with its op, layer,\n"
        "rank and the pass that put it there (docs/prove.md).\n",
    .own = prove_options,
    .notes = "All options of train are taken; those of parts, batch, sequence and accumulation decide what is proven.\n",
    .example = "consist prove --model llama-3.1-70b --strategy tp-sp=8+zero3-offload --ranks 64 --precision bf16\n",
    .takes = Takes::all,
    .taken = prove_takes,
    .run = [](const CommandLine& line) { return planning_command(line, prove_config); }};

}  // namespace consist::commands
