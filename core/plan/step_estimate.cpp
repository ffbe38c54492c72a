#include "core/plan/step_estimate.h"

#include <algorithm>
#include <map>

#include "consist/cost.h"
#include "consist/op.h"
#include "consist/text.h"
#include "core/plan/machine_choice.h"
#include "core/program/operands.h"

namespace consist {
namespace {

struct OfAxis {
  double bytes = 0, seconds = 0;
};

/// Sums over the instructions of one rank.
struct Sums {
  double compute = 0, optimizer = 0, from_host = 0, to_host = 0;
  std::map<AxisSet, OfAxis> axes;
};

Sums add_up(const Program& program) {
  const CostModel& costs = costs_of(program);
  Sums sums;
  for (const Instruction& i : program.instructions) {
    const double seconds = costs.seconds(program, i);
    if (i.op->is_collective()) {
      const AxisSet axes = i.attributes.axes("axis");
      const std::int64_t sent = i.op->bytes_sent(message_bytes(program, i), program.mesh.size_of(axes));
      sums.axes[axes].bytes += static_cast<double>(sent);
      if (sent > 0) sums.axes[axes].seconds += seconds;  // what is received is counted where it is sent
    } else if (i.queue.is_copy()) {
      (i.queue == Queue::host_to_device() ? sums.from_host : sums.to_host) += seconds;
    } else {
      (i.tag.phase == Phase::optimizer ? sums.optimizer : sums.compute) += seconds;
    }
  }
  return sums;
}

std::string milliseconds(double seconds) {
  return fixed_text(seconds * 1e3, 1) + " ms";
}

}  // namespace

StepEstimate estimate_step(std::span<const Program* const> stages) {
  std::vector<Durations> durations;
  for (const Program* stage : stages) durations.push_back(estimated_durations(*stage));
  return estimate_step(stages, simulate(stages, durations));
}

StepEstimate estimate_step(std::span<const Program* const> stages, const Simulation& simulation) {
  StepEstimate e{.seconds = simulation.seconds};
  const double share = 1 / static_cast<double>(stages.size());
  std::map<AxisSet, OfAxis> axes;
  std::map<AxisSet, double> exposed;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Sums sums = add_up(*stages[s]);
    e.compute += sums.compute * share;
    e.optimizer = std::max(e.optimizer, sums.optimizer);
    e.from_host = std::max(e.from_host, sums.from_host);
    e.to_host = std::max(e.to_host, sums.to_host);
    for (const auto& [axis, of] : sums.axes) {
      if (of.bytes >= axes[axis].bytes) axes[axis] = of;
    }
    const SimulatedRank& rank = simulation.ranks[s];
    e.for_copies += rank.for_copies * share;
    e.for_ranks += rank.for_ranks * share;
    for (const auto& [axis, seconds] : rank.communication) exposed[axis] += seconds * share;
  }
  for (const auto& [axis, of] : axes) {
    const bool inside = !costs_of(*stages[0]).crosses_nodes(axis);
    e.axes.push_back({stages[0]->mesh.text(axis), inside, of.bytes, of.seconds, exposed[axis]});
  }
  return e;
}

std::string fit_text(std::int64_t planned_bytes, int rank, const Machine& machine) {
  const auto capacity = static_cast<std::int64_t>(machine.device.memory_bytes.value);
  if (capacity <= 0) return {};
  if (planned_bytes <= capacity) {
    return "Memory: the plan takes " + bytes_text(planned_bytes) + " of the " + bytes_text(capacity) + " of a rank of " +
           machine.name + " (" + fixed_text(100.0 * static_cast<double>(planned_bytes) / machine.device.memory_bytes.value, 0) +
           "%).\n";
  }
  return "DOES NOT FIT: rank " + std::to_string(rank) + " needs " + bytes_text(planned_bytes) + ", a rank of " + machine.name +
         " has " + bytes_text(capacity) +
         ". The estimate is of a machine with more memory. What would make it fit: a smaller --batch with more --accumulation, "
         "--recompute full, --offload-activations all, or more ranks to divide parameters and states over (zero3-offload, tp-sp, "
         "pipeline)\n";
}

std::string estimate_text(const StepEstimate& e, const Machine& machine, int ranks, double tokens, double model_flops) {
  const auto of_step = [&](double seconds) { return " (" + fixed_text(100 * seconds / e.seconds, 1) + "%)"; };
  std::string text = "Estimate of a step, simulated with costs over rates, not measured: " + text_of(machine) + "\n";
  text += "  forward and backward " + milliseconds(e.compute) + "; optimizer " + milliseconds(e.optimizer) + "\n";
  if (e.for_ranks > 0)
    text += "  pipeline: ranks wait " + milliseconds(e.for_ranks) + of_step(e.for_ranks) + " for other stages\n";
  if (e.from_host + e.to_host > 0)
    text += "  host: " + milliseconds(e.from_host) + " of copies from it, " + milliseconds(e.to_host) + " to it; compute waits " +
            milliseconds(e.for_copies) + of_step(e.for_copies) + " for them\n";
  for (const AxisEstimate& axis : e.axes) {
    text += "  " + axis.axis + ": " + bytes_text(static_cast<std::int64_t>(axis.bytes)) + " sent by a rank " +
            (axis.inside_node ? "within its node" : "to other nodes") + ", " + milliseconds(axis.seconds) + "; compute waits " +
            milliseconds(axis.exposed) + of_step(axis.exposed) + " for it\n";
  }
  const double rate = tokens / e.seconds, model = rate * model_flops / ranks;
  text += "  a step: " + milliseconds(e.seconds) +
          (e.error.value ? " \u00b1" + fixed_text(100 * *e.error.value, 0) + "%" : std::string()) + ", " + si_text(rate) +
          " tokens/s, model " + si_text(model) + "FLOP/s per rank (" +
          fixed_text(100 * model / machine.device.peak_bf16.value, 0) + "% of the bf16 peak)\n";
  return e.error.kinds.empty() ? text : text + "  error: " + text_of(e.error) + "\n";
}

}  // namespace consist
