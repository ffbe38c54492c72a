// consist residual: why a measured step is not the predicted one.
#include "launch/residual/residual.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/text.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_output.h"
#include "launch/commands/commands.h"
#include "launch/residual/residual_text.h"
#include "launch/verdict/side.h"

namespace consist::commands {
namespace {

constexpr RunOption residual_options[] = {
    a_switch("json", "the residual as JSON (docs/json.md)"),
};

int residual(const CommandLine& line) {
  if (line.operands.size() != 1)
    throw UsageError("consist residual takes the runs of one configuration, and was given " +
                     std::to_string(line.operands.size()) +
                     " names; archives are joined by commas: consist residual a1.h5,a2.h5");
  const launch::CompareOutcome row = launch::row_of(launch::read_side(line.operands[0]));
  const launch::Residual found = launch::read_residual(launch::step_parts(row), row);
  if (line.flag("json")) {
    launch::print_document(launch::json_of(found));
  } else {
    std::fputs(printable(launch::residual_text(found)).c_str(), stdout);
  }
  return found.problem.empty() ? 0 : exit_failed;
}

}  // namespace

constinit const Command residual_command{
    .name = "residual",
    .summary = "say why a measured step is not the predicted one, part by part, with the likeliest causes",
    .usage = "ARCHIVE[,ARCHIVE...] [--json]",
    .about =
        "Writes the measured step of a run, or of the repeats of one configuration, as the step that was predicted for its\n"
        "machine plus a sum of terms, each with the instructions behind it and its likeliest cause: clock, other work,\n"
        "kernels, memory, links, slower ranks, load of experts, stages, the host, data. Status 1: nothing can be said.\n",
    .own = residual_options,
    .notes = "A run plans for the machine that ships for its device, or for that of --machine; that machine is compared with.\n",
    .example = "consist residual run.h5\n",
    .operand = "FILE",
    .run = residual};

}  // namespace consist::commands
