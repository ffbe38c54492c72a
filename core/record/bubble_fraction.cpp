#include "core/record/bubble_fraction.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/cost/timeline.h"

namespace consist {
namespace {

std::string bytes_of(const Durations& seconds) {
  return {reinterpret_cast<const char*>(seconds.data()), seconds.size() * sizeof(double)};
}

Durations durations_of(const std::string& bytes) {
  Durations seconds(bytes.size() / sizeof(double));
  std::memcpy(seconds.data(), bytes.data(), seconds.size() * sizeof(double));
  return seconds;
}

/// The steps that the ranks of rank 0's pipeline ran, compiled as they were; the own one is there already. Their memory is
/// planned without the scratch of kernels, which no device is asked for.
std::vector<std::unique_ptr<PreparedProgram>> other_stages(const Plan& plan, const std::vector<int>& ranks) {
  std::vector<std::unique_ptr<PreparedProgram>> steps(ranks.size());
  for (std::size_t n = 0; n < ranks.size(); ++n) {
    if (ranks[n] == 0) continue;
    steps[n] = std::make_unique<PreparedProgram>(plan.step(ranks[n]));
    steps[n]->plan();
  }
  return steps;
}

}  // namespace

double bubble_fraction(const Program& program, const Profile& profile, double step_seconds) {
  const double optimizer = profile.compute_seconds(program, true), busy = profile.compute_seconds(program, false);
  const double time = step_seconds - optimizer;
  return time > 0 ? std::clamp(1 - busy / time, 0.0, 1.0) : 0;
}

BubbleReport bubble_report(const std::vector<double>& ranks, std::span<const Program* const> stages,
                           std::span<const Durations> measured) {
  std::vector<Durations> equal, by_ops, by_times;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Program& stage = *stages[s];
    Durations costs;
    for (const Instruction& i : stage.instructions) costs.push_back(costs_of(stage).seconds(stage, i));
    if (measured[s].size() != costs.size())
      throw ProgramError("rank " + std::to_string(stage.rank) + " measured " + std::to_string(measured[s].size()) +
                         " instructions, its step has " + std::to_string(costs.size()));
    equal.push_back(equal_durations(stage));
    by_ops.push_back(without_messages(stage, costs));
    by_times.push_back(without_messages(stage, measured[s]));
  }
  const auto idle = [&](const std::vector<Durations>& durations) {
    return timeline_of(stages, simulate(stages, durations)).bubble_fraction();
  };
  return {.ranks = ranks,
          .mean = std::accumulate(ranks.begin(), ranks.end(), 0.0) / static_cast<double>(std::max<std::size_t>(ranks.size(), 1)),
          .equal_stages = idle(equal),
          .by_ops = idle(by_ops),
          .by_times = idle(by_times)};
}

std::optional<BubbleReport> collect_bubble_report(Job& job, const Plan& plan, const Program& own, const Profile& profile,
                                                  double step_seconds) {
  const std::vector<int> ranks = own.mesh.group(0, own.stage_axis);
  Durations seconds;
  for (std::size_t i = 0; i < own.instructions.size(); ++i) seconds.push_back(profile.seconds(i));
  const std::vector<std::string> shares_of_ranks =
      job.gather("bubble_fraction.share", bytes_of({bubble_fraction(own, profile, step_seconds)}), job.timeout());
  std::vector<std::string> seconds_of_stages;
  if (std::ranges::find(ranks, job.rank()) != ranks.end())
    seconds_of_stages = job.gather("bubble_fraction.seconds", bytes_of(seconds), job.timeout(), ranks);
  if (job.rank() != 0) return std::nullopt;
  std::vector<double> shares;
  for (const std::string& share : shares_of_ranks) shares.push_back(durations_of(share).at(0));
  const std::vector<std::unique_ptr<PreparedProgram>> others = other_stages(plan, ranks);
  std::vector<const Program*> stages;
  std::vector<Durations> measured;
  for (std::size_t s = 0; s < ranks.size(); ++s) {
    stages.push_back(others[s] ? &others[s]->program() : &own);
    measured.push_back(durations_of(seconds_of_stages[s]));
  }
  return bubble_report(shares, stages, measured);
}

std::string bubble_text(const BubbleReport& report) {
  std::string text = "idle " + percent_text(report.mean, 1) + " of forward and backward, measured (by rank:";
  for (double share : report.ranks) text += " " + percent_text(share, 1);
  return text + "); the schedule gives " + percent_text(report.equal_stages, 1) + " if all stages are equal, " +
         percent_text(report.by_ops, 1) + " by the costs of their ops, " + percent_text(report.by_times, 1) +
         " by their measured times\n";
}

}  // namespace consist
