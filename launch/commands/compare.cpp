// consist compare: every combination of the listed parts, each in processes of its own, and a table of their speed and memory.
#include <utility>

#include "consist/error.h"
#include "launch/cli/run_options.h"
#include "launch/cluster/options.h"
#include "launch/commands/commands.h"
#include "launch/commands/comparison.h"
#include "launch/compare/request.h"
#include "launch/verdict/referee.h"
#include "launch/verdict/request.h"

namespace consist::commands {
namespace {

using namespace launch;

constexpr RunOption compare_options[] = {
    a_switch("predict",
             "simulate each row for --machine (h200 without it), run nothing; after real runs predicted steps are beside "
             "measured ones if --machine is given or the device's is known (docs/predict.md)"),
    valued("output", OptionKind::text, "runs/compare", "FOLDER",
           "archives, configurations (--config takes them), logs and comparison.h5"),
    valued("report", OptionKind::text, "", "FILE",
           "the comparison as an HTML page, too, with the reasons for its differences (docs/report.md)"),
    a_switch("overwrite", "begin again: files of the same names in the folder are replaced"),
    valued("repeats", OptionKind::integer, "", "N",
           "runs of each row (3; 1 where a run takes more than two minutes), and up to N more of rows "
           "beside which other work ran, and of rows whose interval meets that of the fastest",
           "1..1000"),
    several(valued("add", OptionKind::text, "", "FILE...",
                   "archives of runs made elsewhere (or of comparisons, comparison.h5) as rows beside these, "
                   "or alone; differences between the machines and conditions are printed first")),
    valued("until-sure", OptionKind::text, "", "DURATION",
           "run the rows by turns until each is told from the first one (or --against), or is the same, or so much time is "
           "over: 10min (docs/verdict.md)"),
    valued("against", OptionKind::text, "", "SIDE",
           "judge each row against these archives, a side of consist verdict, instead of the first row"),
    valued("slower", OptionKind::text, "", "P", slower_help),
    valued("within", OptionKind::text, "", "P", within_help),
    valued("confidence", OptionKind::text, "95%", "P", "of the verdicts"),
    on_option,
    cluster_option,
    dry_run_option,
};
constexpr TakenOption compare_takes[] = {
    {"config", "options from a file (docs/configuration.md), in which lists are those of a comparison"}};

int compare(const CommandLine& line) {
  CompareRequest request = read_compare_request(line);
  std::vector<ConfigEntry> entries = entries_of(request);
  request.plugins = plugin_paths_of(request, entries);
  PluginHost host(request.plugins);
  spell_options(entries, request, host);
  leave_out_roles(entries, request, host);
  request.owners_of_file = owners_of(entries, request);
  const std::vector<std::string> words = words_of(entries, request.train, host);
  request.train.insert(request.train.begin(), words.begin(), words.end());
  settle_ranks(request);
  std::optional<Referee> referee = read_referee(line);
  if (referee && (request.predict || request.train.empty()))
    throw UsageError(
        std::string(line.has("against") ? "--against" : "--until-sure") + " judges runs of this command, which " +
        (request.predict ? "--predict does not make" : "has no rows of its own; consist verdict A B judges archives"));
  return run_comparison(std::move(request), std::move(referee), host);
}

}  // namespace

constinit const Command compare_command{
    .name = "compare",
    .summary = "train every combination of the listed values and compare them",
    .usage = "--model A,B --strategy S,T --precision P,Q ... [--predict | --output FOLDER] [OPTIONS of train]",
    .about =
        "Trains every combination of the listed values, each in processes of its own and several times in turn, and prints a\n"
        "table: tokens/s with their confidence interval, step time, share of the measured bound, planned and measured memory,\n"
        "bytes sent, final loss and its parity; then the effect of each choice by itself, and the fastest row of each model if\n"
        "it can be told apart. Illegal or unavailable combinations are in the table with their reason, those that are the same\n"
        "program share a row, and a run that fails does not stop the rest. The same command continues a comparison that was\n"
        "stopped. Another one in the same folder is refused where it would replace other runs or rows.\n",
    .own = compare_options,
    .notes =
        "Every option of consist train and of parts may be a list A,B; a list of a part's option (--zero2.stage 1,2) holds for\n"
        "the runs that have the part. Where values have commas of their own: --transport a=T1+b=T2, --recompute A+B, --from-set\n"
        "KEY=A,B or KEY=[..],[..]; text options of parts (files, patterns, speeds) take [A,B],[C]. The word from is the value\n"
        "of the file of --from: --strategy from,zero2. Not lists: --plugin, --checkpoint and --export, which name a folder in\n"
        "which each run has its own, and --trace, a file to whose name each run adds its own.\n",
    .example = "consist compare --model llama-tiny,qwen3-tiny --ranks 1,2 --precision fp32,bf16 --global-batch 8 --steps 40\n",
    .takes = Takes::all,
    .taken = compare_takes,
    .run = compare};

}  // namespace consist::commands
