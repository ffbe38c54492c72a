// consist verdict: faster, slower, the same or cannot be told, of two sides of archives.
#include "launch/verdict/verdict.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/text.h"
#include "launch/cli/json_output.h"
#include "launch/commands/commands.h"
#include "launch/verdict/request.h"
#include "launch/verdict/verdict_json.h"
#include "launch/verdict/words.h"

namespace consist::commands {
namespace {

constexpr RunOption verdict_options[] = {
    valued("slower", OptionKind::text, "", "P", launch::slower_help),
    valued("confidence", OptionKind::text, "95%", "P", "of the intervals"),
    valued("within", OptionKind::text, "", "P", launch::within_help),
    valued("run-spread", OptionKind::text, "", "P",
           "standard deviation from run to run, where there are too few runs to measure it (1%; 6% on processors)"),
    a_switch("json", "the verdict as JSON (docs/json.md)"),
    a_switch("markdown", "the verdict as Markdown, for the comment of a pull request"),
};

/// Judges what the line names. Archives that cannot be read are bad input: status 1 is for a B that is slower.
launch::Verdict judged_by(const CommandLine& line) {
  const launch::VerdictRequest request = launch::read_verdict_request(line);
  try {
    return launch::judge(launch::read_side(line.operands[0]), launch::read_side(line.operands[1]), request);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

int verdict(const CommandLine& line) {
  if (line.operands.size() != 2)
    throw UsageError("consist verdict takes two sides, A and B, and was given " + std::to_string(line.operands.size()) +
                     "; archives of one side are joined by commas: consist verdict a1.h5,a2.h5 b1.h5,b2.h5");
  if (line.flag("json") && line.flag("markdown"))
    throw UsageError("--json and --markdown both say what standard output is; leave one of them out");
  const launch::Verdict judged = judged_by(line);
  if (line.flag("json")) {
    launch::print_document(launch::json_of(judged));
  } else {
    const std::string text = line.flag("markdown") ? launch::verdict_markdown(judged) : launch::verdict_text(judged);
    std::fputs(printable(text).c_str(), stdout);
  }
  return judged.exit_status();
}

}  // namespace

constinit const Command verdict_command{
    .name = "verdict",
    .summary = "say of two sides of archives: faster, slower, the same, or cannot be told",
    .usage = "A B [--slower P] [--confidence P] [--json | --markdown]",
    .about =
        "Judges the runs of B against those of A: speed, peak memory, loss after as many steps, energy (where the device\n"
        "tells its power), each with the interval of its change; and says which parts of the step's time the difference in\n"
        "speed is made of. First it says what makes the two incomparable. A side is an archive, a folder of archives, a row\n"
        "of compare's folder with its repeats (runs/compare/ROW), or several of these joined by commas.\n",
    .own = verdict_options,
    .notes =
        "Three runs of each side, made by turns (A B B A ...), are judged by how runs differ; of fewer, how much runs differ\n"
        "is assumed (--run-spread).\n",
    .example = "consist verdict runs/compare/llama-tiny_fp32 runs/compare/llama-tiny_bf16 --slower 2%\n",
    .operand = "FILE",
    .run = verdict};

}  // namespace consist::commands
