#include "launch/compare/predicted.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "consist/error.h"
#include "consist/host.h"
#include "consist/text.h"
#include "core/archive/archived_json.h"
#include "core/archive/reader.h"
#include "core/plan/machine_choice.h"
#include "launch/predict/remedies.h"

namespace consist::launch {
namespace {

std::shared_ptr<const Machine> machine_of(const RunConfig& config) {
  if (config.machine.empty()) return reference_machine();
  return std::make_shared<const Machine>(parse_machine(config.machine));
}

/// States the memory that a rank needs, and the roles that take the most of it.
std::string too_large(const Prediction& prediction, const std::vector<PlannedRank>& ranks, const std::string& machine) {
  const auto largest = std::max_element(ranks.begin(), ranks.end(), [](const PlannedRank& a, const PlannedRank& b) {
    return a.summary.planned_bytes < b.summary.planned_bytes;
  });
  std::string text =
      "a rank needs " + bytes_text(largest->summary.planned_bytes) + ", " + machine + " has " + bytes_text(prediction.capacity);
  std::vector<MemoryShare> shares = largest->summary.memory;
  std::erase_if(shares, [](const MemoryShare& share) { return share.what == "fragmentation"; });
  std::stable_sort(shares.begin(), shares.end(), [](const MemoryShare& a, const MemoryShare& b) { return a.bytes > b.bytes; });
  constexpr std::size_t most = 2;
  for (std::size_t n = 0; n < std::min(most, shares.size()); ++n)
    text += (n == 0 ? ": " : ", ") + bytes_text(shares[n].bytes) + " " + shares[n].what;
  return text;
}

/// The change that makes the plan fit, on a line of its own: the fastest of those that leave the training as it is, else of all.
std::string remedy_of(const Plan& plan, PluginHost& host, const Prediction& asked) {
  constexpr double seconds = 5;  // a table may have many such rows
  std::vector<Remedy> remedies =
      remedies_for(plan, host, room_of(*plan.target().machine), {.seconds = seconds, .threads = usable_cores()});
  if (remedies.empty()) return {};
  const auto same = std::find_if(remedies.begin(), remedies.end(), [](const Remedy& remedy) { return remedy.caution.empty(); });
  if (same != remedies.end()) std::iter_swap(remedies.begin(), same);
  remedies.resize(1);
  std::string text = "\n" + text_of(remedies, asked);
  text.pop_back();  // the end of its line
  return text;
}

/// As a run's archive says it.
RunOutcome run_of(const Prediction& prediction, const std::vector<PlannedRank>& ranks) {
  RunOutcome run{.status = "finished",
                 .tokens_per_second = prediction.tokens_per_second,
                 .step_seconds = prediction.time.seconds,
                 .planned_bytes = static_cast<double>(prediction.most_bytes()),
                 .measured_bytes = static_cast<double>(prediction.most_bytes()),
                 .bytes_sent_per_step = 0};
  for (const PlannedRank& rank : ranks) {
    double sent = 0, collectives = 0;
    for (const CollectiveSummary& c : rank.summary.collectives) {
      sent += static_cast<double>(c.bytes_sent);
      collectives += static_cast<double>(c.count);
    }
    run.bytes_sent_per_step = std::max(run.bytes_sent_per_step, sent);
    run.collectives = std::max(run.collectives, collectives);
    run.planned_host_bytes = std::max(run.planned_host_bytes, static_cast<double>(rank.summary.planned_host_bytes));
  }
  return run;
}

/// Sets the transports that moved the bytes of the archive's run, by axis, in place of --transport.
void take_transports_of_run(const ArchiveReader& archive, RunConfig& config) {
  const auto topology = archived_json(archive.text("/topology"));
  config.transport_of.clear();
  for (const auto& axis : topology.at("axes"))
    config.transport_of[axis.at("name").get<std::string>()] = axis.at("transport").get<std::string>();
}

}  // namespace

CompareOutcome predicted_outcome(const Plan& planned, PluginHost& host) {
  CompareOutcome outcome;
  try {
    const Plan plan = planned.for_target({nullptr, machine_of(planned.config()), false, {}});
    const std::vector<PlannedRank> ranks = plan.ranks(0, usable_cores());
    Prediction prediction = predict(plan, ranks, simulate(ranks));
    if (prediction.fits()) {
      outcome.status = "finished";
      outcome.runs.push_back(run_of(prediction, ranks));
      const Power power = power_named(plan.config().machine);
      const Costs costs = costs_of(prediction, plan, power);
      outcome.runs.back().cost = costs.per_billion_tokens.value_or(unknown);
      if (!power.is_bound()) outcome.runs.back().joules = costs.joules_per_billion_tokens.value_or(unknown);
      outcome.speed.mean = prediction.tokens_per_second;
    } else {
      outcome.status = "does not fit";
      outcome.reason = too_large(prediction, ranks, plan.target().machine->name) + remedy_of(plan, host, prediction);
    }
    outcome.prediction = std::move(prediction);
  } catch (const Error& error) {
    outcome.status = "refused";
    outcome.reason = error.what();
  }
  return outcome;
}

PredictedRun predicted_run(const RunConfig& config, const std::string& archive, PluginHost& host, Machine machine) {
  machine.ranks_per_node = config.ranks;  // compare's runs are on one host
  RunConfig as_run = config;
  take_transports_of_run(ArchiveReader(archive), as_run);
  const Plan plan = plan_run(std::move(as_run), host, {nullptr, std::make_shared<const Machine>(std::move(machine)), false});
  const std::vector<PlannedRank> ranks = plan.ranks(0, usable_cores());
  return {simulate(ranks).seconds, kinds_of(programs_of(ranks), {})};
}

double predicted_seconds(const RunConfig& config, const std::string& archive, PluginHost& host) {
  try {
    Machine machine;
    const ArchiveReader reader(archive);
    if (!config.machine.empty()) {
      machine = parse_machine(config.machine);
    } else {
      const auto environment = archived_json(reader.text("/environment"));
      const auto& planned_for = environment.at("planned_for");
      const Machine* own = find_machine(planned_for.at("machine").get<std::string>());
      if (planned_for.at("origin") != "the device's" || own == nullptr || own->step_error.value <= 0) return unknown;
      machine = *own;
    }
    return predicted_run(config, archive, host, std::move(machine)).seconds;
  } catch (const Error&) {
    return unknown;  // a file that has gone since: the measured row stands without it
  } catch (const nlohmann::json::exception&) {
    return unknown;  // an archive of before
  }
}

}  // namespace consist::launch
