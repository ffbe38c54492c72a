#include "launch/residual/residual.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/archive/archived_json.h"
#include "launch/residual/terms.h"

namespace consist::launch {
namespace {

double seconds_of(const PartSeconds& parts, const std::string& part) {
  const auto found = parts.find(part);
  return found == parts.end() ? 0 : found->second;
}

double sum_of(const PartSeconds& parts) {
  double sum = 0;
  for (const auto& [part, seconds] : parts) sum += seconds;
  return sum;
}

/// Why nothing can be said of these parts.
std::string problem_of(const StepParts& step) {
  if (!step.problem.empty()) return step.problem;
  if (step.source != "measured")
    return "The instructions of its steps were not timed: on GPUs that takes 20 steps or --profile, of which some are timed.";
  if (step.simulated_parts.empty()) return "No step was simulated beside the measured ones.";
  if (!step.simulated_groups)
    return "The archive holds no simulated times of instructions. Run it again with this version of Consist.";
  return {};
}

}  // namespace

double Sides::predicted(const std::string& part) const {
  return seconds_of(step.simulated_parts, part);
}

double Sides::measured(const std::string& part) const {
  return seconds_of(step.parts, part);
}

std::vector<InstructionGroup> Sides::groups_of(const std::string& part) const {
  std::vector<InstructionGroup> groups;
  for (const InstructionGroup& group : step.groups) {
    if (group.part == part) groups.push_back(group);
  }
  return groups;
}

std::vector<ResidualGroup> largest_changes(const std::vector<InstructionGroup>& groups) {
  std::vector<ResidualGroup> changes;
  for (const InstructionGroup& group : groups) changes.push_back({group.text, group.simulated_seconds, group.seconds});
  std::stable_sort(changes.begin(), changes.end(), [](const ResidualGroup& a, const ResidualGroup& b) {
    return std::abs(a.measured - a.predicted) > std::abs(b.measured - b.predicted);
  });
  if (changes.size() > 3) changes.resize(3);
  return changes;
}

SlowestRank slowest_rank(const Conditions& conditions) {
  const std::vector<double>& work = conditions.rank_work;
  if (work.size() < 2 || work.front() <= 0) return {};
  std::vector<double> others(work.begin() + 1, work.end());
  const auto slowest = std::max_element(others.begin(), others.end());
  SlowestRank found{.rank = 1 + static_cast<int>(slowest - others.begin()),
                    .over_rank_0 = std::max(0.0, *slowest / work.front() - 1)};
  std::nth_element(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2), others.end());
  const double median = others[others.size() / 2];
  if (median > 0) found.rank_0_over = std::max(0.0, work.front() / median - 1);
  return found;
}

const std::map<std::string, CauseKind>& causes() {
  static const std::map<std::string, CauseKind> kinds{
      {"clock",
       {"clock and power",
        "look at the device's clocks and power limit (nvidia-smi -q -d CLOCK,POWER,PERFORMANCE), or measure "
        "this machine: consist calibrate"}},
      {"device",
       {"other work on the device, or a slower device",
        "look for other processes on it, or measure this machine: consist calibrate"}},
      {"memory", {"the device's memory", "look for other processes on the device, or measure this machine: consist calibrate"}},
      {"kernel",
       {"kernels of another algorithm",
        "look at device_notes in the archive's /environment and at the device's options "
        "(consist plugins cuda, consist plugins cpu)"}},
      {"experts", {"load of the experts", "look at /experts in the archive; the prediction takes balanced experts"}},
      {"rank",
       {"a rank that is slower than others", "look at that rank's device and host: other processes, clocks, its processors"}},
      {"link",
       {"links between ranks",
        "look at the path that was verified (consist show) and at what limits it (NCCL's variables); "
        "consist bench collectives measures it"}},
      {"overlap", {"communication that other amounts of computing hide", "look at the step queue by queue: consist report"}},
      {"stage", {"a stage of the pipeline that is slower", "give the ranks' speeds: --profile tells --pipeline.rank-speeds"}},
      {"host-link",
       {"the link between host and device",
        "look at its width and other traffic (nvidia-smi -q -d PCIE); consist calibrate measures it"}},
      {"host", {"the host, which starts work late", "look for other processes on the host's processors, and at --cuda.graphs"}},
      {"data", {"waiting for data", "look at the disk, or prepare the tokens beforehand (docs/data.md)"}}};
  return kinds;
}

std::vector<std::pair<std::string, double>> Residual::by_cause() const {
  std::vector<std::pair<std::string, double>> sums;
  for (const ResidualTerm& term : terms) {
    if (term.cause.empty()) continue;
    const auto found = std::find_if(sums.begin(), sums.end(), [&](const auto& sum) { return sum.first == term.cause; });
    if (found == sums.end()) {
      sums.emplace_back(term.cause, term.seconds);
    } else {
      found->second += term.seconds;
    }
  }
  std::stable_sort(sums.begin(), sums.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.second) > std::abs(b.second); });
  return sums;
}

bool Residual::within_error() const {
  const double ratio = measured / predicted;
  return step_error && ratio < 1 + *step_error && ratio > 1 / (1 + *step_error);
}

Residual residual_of(const StepParts& step, const Conditions& conditions) {
  if (const std::string problem = problem_of(step); !problem.empty()) return {.problem = problem};
  Residual residual{.predicted = sum_of(step.simulated_parts), .measured = step.step_seconds + conditions.data_seconds};
  const auto& simulation = step.timeline->at("simulation");
  residual.machine = simulation.at("machine").get<std::string>();
  if (const auto error = simulation.find("step_error"); error != simulation.end() && error->is_number())
    residual.step_error = error->get<double>();
  const Sides sides{step, conditions, residual.step_error};
  for (const auto& terms : {compute_terms(sides), communication_terms(sides), waiting_terms(sides)})
    residual.terms.insert(residual.terms.end(), terms.begin(), terms.end());
  std::stable_sort(residual.terms.begin(), residual.terms.end(),
                   [](const ResidualTerm& a, const ResidualTerm& b) { return std::abs(a.seconds) > std::abs(b.seconds); });
  return residual;
}

Residual read_residual(const StepParts& step, const CompareOutcome& outcome) {
  if (!step.problem.empty()) return {.problem = step.problem};
  return of_archive(step.archive, [&] { return residual_of(step, read_conditions(step, outcome.runs.front())); });
}

Residual read_residual(const std::string& archive) {
  const CompareOutcome row = row_of(read_outcome(archive));
  const RunOutcome& run = row.runs.front();
  if (run.status != "finished" || run.step_seconds <= 0) return {.problem = "The run of " + archive + " has not finished."};
  return read_residual(step_parts(row), row);
}

Residual residual_if_readable(const std::string& archive) {
  try {
    return read_residual(archive);
  } catch (const DataError& error) {
    return {.problem = error.what()};
  }
}

}  // namespace consist::launch
