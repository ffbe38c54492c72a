#include "core/cost/step_time.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "consist/cost.h"
#include "consist/op.h"
#include "core/base/quantity_text.h"
#include "core/program/operands.h"

namespace consist {

double StepTime::exposed() const {
  double all = 0;
  for (const auto& [axis, waited] : communication) all += waited;
  return all;
}

std::optional<double> StepTime::low() const {
  return error.value ? std::optional(seconds / (1 + *error.value)) : std::nullopt;
}

std::optional<double> StepTime::high() const {
  return error.value ? std::optional(seconds * (1 + *error.value)) : std::nullopt;
}

double StepTime::gaps() const {
  double rest = seconds - exposed() - bubble - copies;
  for (const double kind : work) rest -= kind;
  return rest;
}

StepTime step_time(const Program& program, const SimulatedRank& rank, double seconds) {
  StepTime time{.seconds = seconds, .work = work_seconds(program, rank), .bubble = rank.for_ranks, .copies = rank.for_copies};
  for (const auto& [axes, waited] : rank.communication) time.communication[program.mesh.text(axes)] = waited;
  return time;
}

StepTime step_time(std::span<const Program* const> stages, const Simulation& simulation) {
  StepTime mean{.seconds = simulation.seconds};
  const double weight = 1 / static_cast<double>(stages.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StepTime of_stage = step_time(*stages[s], simulation.ranks[s], simulation.seconds);
    for (std::size_t kind = 0; kind < mean.work.size(); ++kind) mean.work[kind] += weight * of_stage.work[kind];
    for (const auto& [axis, waited] : of_stage.communication) mean.communication[axis] += weight * waited;
    mean.bubble += weight * of_stage.bubble;
    mean.copies += weight * of_stage.copies;
  }
  return mean;
}

nlohmann::ordered_json json_of(const StepTime& time) {
  nlohmann::ordered_json json;
  for (const Work kind : all_work) json[std::string(name_of(kind))] = time.of(kind);
  json["exposed_communication"] = time.communication;
  json["bubble"] = time.bubble;
  json["copies"] = time.copies;
  return json;
}

std::string shares_text(const StepTime& time) {
  const auto share = [&](double seconds) { return percent_text(seconds / time.seconds, 1); };
  std::string text = "products " + share(time.of(Work::products)) + ", attention " + share(time.of(Work::attention)) +
                     ", memory-bound " + share(time.of(Work::memory_bound)) + ", optimizer " + share(time.of(Work::optimizer));
  for (const auto& [axis, waited] : time.communication) text += ", exposed communication (" + axis + ") " + share(waited);
  if (time.bubble > 0) text += ", bubble " + share(time.bubble);
  if (time.copies > 0) text += ", host " + share(time.copies);
  return text;
}

StepTransfers transfers_of(std::span<const Program* const> stages) {
  StepTransfers most;
  std::map<AxisSet, AxisTransfers> by_axes;
  for (const Program* stage : stages) {
    const CostModel& costs = costs_of(*stage);
    double from_host = 0, to_host = 0;
    std::map<AxisSet, AxisTransfers> of_stage;
    for (const Instruction& i : stage->instructions) {
      if (i.op->is_collective()) {
        const AxisSet axes = i.attributes.axes("axis");
        const std::int64_t sent = i.op->bytes_sent(message_bytes(*stage, i), stage->mesh.size_of(axes));
        AxisTransfers& transfers = of_stage[axes];
        transfers.bytes += static_cast<double>(sent);
        if (sent > 0) transfers.seconds += costs.seconds(*stage, i);  // what is received is counted where it is sent
      } else if (i.queue.is_copy()) {
        (i.queue == Queue::host_to_device() ? from_host : to_host) += costs.seconds(*stage, i);
      }
    }
    most.from_host = std::max(most.from_host, from_host);
    most.to_host = std::max(most.to_host, to_host);
    for (const auto& [axes, transfers] : of_stage) {
      AxisTransfers& there = by_axes[axes];
      if (transfers.bytes >= there.bytes) there = {axes, transfers.bytes, transfers.seconds};
    }
  }
  for (const auto& [axes, transfers] : by_axes) most.axes.push_back(transfers);
  return most;
}

}  // namespace consist
