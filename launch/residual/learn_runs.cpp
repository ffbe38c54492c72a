#include "launch/residual/learn_runs.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "consist/error.h"
#include "core/archive/archived_json.h"
#include "core/plan/machine_choice.h"
#include "launch/cli/run_options.h"
#include "launch/compare/outcome.h"
#include "launch/compare/predicted.h"
#include "launch/measure/step_errors.h"

namespace consist::launch {
namespace {

LearnedRun read_learned(const std::string& archive, PluginHost& host) {
  const CompareOutcome row = row_of(read_outcome(archive));
  const RunOutcome& run = row.runs.front();
  if (run.status != "finished" || run.step_seconds <= 0)
    throw UsageError("--learn " + archive + ": the run has not finished; a machine is learned from runs that have");
  LearnedRun learned{.archive = archive,
                     .config = make_config(parse_run(std::vector<std::string>{"--config", archive}), host),
                     .step = step_parts(row),
                     .clock = run.clock > 0 ? run.clock : 0,
                     .measured = run.step_seconds};
  if (!learned.step.problem.empty()) throw UsageError("--learn " + archive + ": " + learned.step.problem);
  if (learned.step.source != "measured" || !learned.step.simulated_groups)
    throw UsageError("--learn " + archive +
                     " holds no measured instructions with simulated ones beside: run it again with 20 steps or more, or with "
                     "--profile");
  return learned;
}

/// The machine that the run was simulated for, as --machine takes it.
std::string machine_of(const LearnedRun& run) {
  if (!run.config.machine.empty()) return run.config.machine;
  return run.step.timeline->at("simulation").at("machine").get<std::string>();
}

std::string base_of(const std::vector<LearnedRun>& runs) {
  const std::string base = machine_of(runs.front());
  for (const LearnedRun& run : runs) {
    if (const std::string other = machine_of(run); other != base)
      throw UsageError("--learn: " + runs.front().archive + " was planned for the machine '" + base + "', " + run.archive +
                       " for '" + other + "'; give runs that were planned for one");
  }
  return base;
}

/// The ops of all runs but one.
LearnedOps others_of(const std::vector<LearnedRun>& runs, const LearnedRun& left_out) {
  std::vector<const StepParts*> steps;
  for (const LearnedRun& run : runs) {
    if (&run != &left_out) steps.push_back(&run.step);
  }
  return ops_of(steps);
}

}  // namespace

bool LearnedFile::is_better() const {
  double before = 0, now = 0;
  for (const LearnedRun& run : runs) {
    before += std::pow(std::log(run.before / run.measured), 2);
    now += std::pow(std::log(run.held_out / run.measured), 2);
  }
  return now < before;
}

LearnedFile learn_from(const std::vector<std::string>& archives, PluginHost& host) {
  if (archives.size() < 2)
    throw UsageError("--learn takes two archives or more, joined by commas: each is predicted by what the others teach");
  LearnedFile file;
  for (const std::string& archive : archives)
    file.runs.push_back(of_archive(archive, [&] { return read_learned(archive, host); }));
  file.base = of_archive(archives.front(), [&] { return base_of(file.runs); });
  const Machine base = parse_machine(file.base);
  file.power = power_named(file.base);
  file.errors_before = step_errors_for(file.base, base);
  std::vector<const StepParts*> steps;
  std::vector<CheckedStep> checked;
  double clocks = 0;
  for (LearnedRun& run : file.runs) {
    run.before = predicted_run(run.config, run.archive, host, base).seconds;
    const PredictedRun held_out = predicted_run(run.config, run.archive, host, learned_machine(base, others_of(file.runs, run)));
    run.held_out = held_out.seconds;
    run.kinds = held_out.kinds;
    checked.push_back({run.kinds, run.held_out, run.measured});
    steps.push_back(&run.step);
    clocks += run.clock;
  }
  file.ops = ops_of(steps);
  file.machine = learned_machine(base, file.ops);
  file.errors = errors_of(checked);
  file.machine.step_error = error_of_device(file.errors);
  if (clocks > 0 && file.power.is_known())
    file.power.clock = {clocks / static_cast<double>(file.runs.size()), FigureSource::measured_here};
  return file;
}

}  // namespace consist::launch
