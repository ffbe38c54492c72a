// consist evaluate: loss and perplexity of a trained model on a dataset.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "consist/files.h"
#include "consist/text.h"
#include "core/archive/own_metric_values.h"
#include "core/record/progress_line.h"
#include "core/training/evaluation.h"
#include "launch/cli/json_values.h"
#include "launch/cli/run_options.h"
#include "launch/commands/commands.h"
#include "launch/generate/trained_model.h"
#include "launch/start/run_in_job.h"

namespace consist::commands {
namespace {

constexpr RunOption evaluate_options[] = {
    valued("json", OptionKind::text, "", "FILE", "the result as a file; --overwrite replaces one")};
constexpr TakenOption evaluate_takes[] = {
    {"model", "a Hugging Face folder; with --checkpoint the preset or folder that was trained"},
    {"checkpoint", "a run's checkpoints, of which the newest counts"},
    {"adapter", "with its options; with --checkpoint that of the run"},
    {"frozen-weights", "how the weights beside the adapter lie in memory"},
    {"loss", "with its options: the loss that is evaluated; with --checkpoint that of the run"},
    {"dataset", "with its options, such as --text.eval-files FILES or --tokens.files FILES"},
    {"evaluate-sequences", "sequences at most; 0: all of the evaluation part"},
    {"sequence", "tokens per sequence"},
    {"batch", "sequences per rank at once"},
    {"optimizer", "whose passes and states evaluations read, if it has any"},
    {"optimizer-rules", "of the run"},
    {"config", "options of a run, from a file or from the run's archive"},
    {"archive", "the evaluation as an HDF5 archive (docs/archive.md)"},
    {"overwrite", "replace the files of --json and --archive"},
    {"ranks"},
    {"strategy"},
    {"transport"},
    {"precision"},
    {"device"},
    {"plugin"},
    {"seed"},
    {"machine"},
    {"timeout"},
    {"memory-limit"},
    {"host-memory-limit"},
};

void print(const EvaluationResult& result) {
  const std::string text = "loss " + fixed_text(result.loss, 6) + (result.perplexity ? "" : " " + result.loss_unit) +
                           (result.perplexity ? "  perplexity " + fixed_text(*result.perplexity, 4) : std::string()) +
                           metrics_text(result.metrics) + "  over " + std::to_string(result.tokens) + " tokens of " +
                           std::to_string(result.sequences) + " sequences in " + fixed_text(result.seconds, 2) + " s (" +
                           si_text(static_cast<double>(result.tokens) / result.seconds) + " tokens/s)\n";
  std::fprintf(stderr, "%s\n", printable("weights of " + result.weights + "; " + result.dataset + "; " + result.device).c_str());
  std::fputs(text.c_str(), stdout);
}

void write_json(const Output& output, const EvaluationResult& result) {
  const nlohmann::ordered_json json{{"weights", result.weights},
                                    {"dataset", result.dataset},
                                    {"loss", result.loss},
                                    {"loss_unit", result.loss_unit},
                                    {"perplexity", launch::known(result.perplexity)},
                                    {"tokens", result.tokens},
                                    {"sequences", result.sequences},
                                    {"seconds", result.seconds},
                                    {"device", result.device},
                                    {"metrics", json_of(result.metrics)}};
  write_output(output, json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

int evaluate(const CommandLine& line) {
  ParsedRun parsed = parse_run(line);
  launch::add_options_of_checkpoint(parsed, {"loss"});
  parsed.given["evaluate-every"] = {"consist evaluate", {"1"}};  // there are no steps: it says that there is an evaluation
  PluginHost host(plugin_paths(parsed));
  RunConfig config = make_config(parsed, host);
  // The configuration file of a run names the run's own archive.
  if (!parsed.is_on_command_line("archive")) config.archive.clear();
  if (!parsed.is_on_command_line("overwrite")) config.overwrite = false;
  const Output json{"--json", parsed.text("json"), config.overwrite};
  return launch::run_in_job(
      "evaluate", line.arguments, parsed, std::move(config), host,
      [&](const Plan& plan, JoinedJob& job, launch::StopSignals& /*signals*/, const Continuation& /*continuation*/) {
        if (job.rank() == 0 && !json.path.empty()) check_output(json);
        for (const std::string& note : plan.config().notes) {
          if (job.rank() == 0) std::fprintf(stderr, "%s\n", printable(note).c_str());
        }
        const EvaluationResult result = run_evaluation(plan, job);
        if (job.rank() != 0) return 0;
        print(result);
        if (!json.path.empty()) write_json(json, result);
        return 0;
      });
}

}  // namespace

constinit const Command evaluate_command{
    .name = "evaluate",
    .summary = "loss of a trained model on a dataset, and its perplexity",
    .usage = "--model FOLDER|--checkpoint FOLDER [OPTIONS]",
    .about =
        "Reads sequences of a dataset's evaluation part, each once, and prints the mean loss over their tokens and, of the\n"
        "next token's cross-entropy, its perplexity: the same evaluation as --evaluate-every of train, in any layout\n"
        "(docs/generate.md). Weights are those of a Hugging Face folder (an export is one), or of a run's newest checkpoint;\n"
        "model, loss, optimizer, precision, dataset, sequence and batch of that run are then taken unless they are given.\n",
    .own = evaluate_options,
    .example = "consist evaluate --model exported --dataset text --text.eval-files held-out.txt --evaluate-sequences 0\n",
    .takes = Takes::named,
    .taken = evaluate_takes,
    .run = evaluate};

}  // namespace consist::commands
