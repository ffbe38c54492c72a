#include "launch/residual/conditions.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "core/archive/archived_json.h"
#include "core/archive/reader.h"
#include "core/record/metrics.h"
#include "core/record/step_timeline.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

/// Mean of the steps `first` to `last`, counted from 1; unknown where the column has none of them.
double mean_of(std::span<const double> values, std::int64_t first, std::int64_t last) {
  double sum = 0;
  int count = 0;
  for (std::int64_t step = first; step <= last && step <= static_cast<std::int64_t>(values.size()); ++step) {
    const double value = values[static_cast<std::size_t>(step - 1)];
    if (!std::isfinite(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? unknown : sum / count;
}

/// Divides the experts of each router equally over `members`, in their order, as expert parallelism does.
void read_experts(const ArchiveReader& archive, int members, Conditions& conditions) {
  double worst = 0, mine = 0;
  std::size_t count = 0;
  for (const ArchivedChoices& row : archive.experts()) {
    const std::size_t experts = row.experts;
    for (std::size_t at = 0; experts > 0 && at + experts <= row.choices.size(); at += experts) {
      std::vector<double> of_member(static_cast<std::size_t>(members), 0);
      for (std::size_t e = 0; e < experts; ++e) of_member[e * of_member.size() / experts] += row.choices[at + e];
      const double mean = std::accumulate(of_member.begin(), of_member.end(), 0.0) / members;
      if (mean <= 0) continue;
      worst += *std::max_element(of_member.begin(), of_member.end()) / mean;
      mine += of_member.front() / mean;
      ++count;
    }
  }
  if (count == 0) return;
  conditions.expert_imbalance = worst / static_cast<double>(count);
  conditions.own_experts = mine / static_cast<double>(count);
}

void read_axes(const ArchiveReader& archive, Conditions& conditions) {
  const Json topology = archived_object<Json>(archive.text("/topology"));
  for (const Json& axis : topology.value("axes", Json::array())) {
    const std::string name = axis.at("name").get<std::string>();
    if (const auto path = axis.find("verified_path"); path != axis.end() && path->is_string())
      conditions.paths[name] = path->get<std::string>();
    if (axis.value("strategy", std::string()) != "ep" || axis.at("size").get<int>() < 2) continue;
    conditions.expert_axis = name;
    read_experts(archive, axis.at("size").get<int>(), conditions);
  }
}

}  // namespace

Conditions read_conditions(const StepParts& step, const RunOutcome& run) {
  const ArchiveReader archive(step.archive);
  Conditions conditions;
  const std::vector<double> seconds = archive.column("seconds");
  const auto steps = static_cast<std::int64_t>(seconds.size());
  const std::int64_t first = steady_state(seconds).first_step;
  conditions.is_processor = archived_object<Json>(archive.text("/environment")).value("device_kind", std::string("cpu")) == "cpu";
  const double data = mean_of(archive.column_if_any("data_seconds"), first, steps);
  if (std::isfinite(data)) conditions.data_seconds = data;
  const std::vector<double> clock = archive.column_if_any("device_sm_clock");
  const TimedSteps timed = timed_steps(steps, conditions.is_processor);
  conditions.clock = mean_of(clock, first, steps);
  conditions.timed_clock = mean_of(clock, timed.first, timed.last);
  conditions.expert_load = mean_of(archive.column_if_any("expert_load"), first, steps);
  const Json& simulation = step.timeline->at("simulation");
  if (const auto found = simulation.find("clock"); found != simulation.end() && found->is_number())
    conditions.machine_clock = found->get<double>();
  if (step.timeline->contains("rank_work") && step.timeline->at("classes").size() == 1)
    conditions.rank_work = step.timeline->at("rank_work").get<std::vector<double>>();
  if (run.processors) conditions.other_work = run.processors->others + run.processors->stolen;
  read_axes(archive, conditions);
  return conditions;
}

}  // namespace consist::launch
