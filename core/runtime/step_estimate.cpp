#include "core/runtime/step_estimate.h"

#include <algorithm>
#include <map>

#include "consist/op.h"
#include "core/passes/timeline.h"
#include "core/passes/work.h"
#include "core/program/operands.h"
#include "core/runtime/text.h"

namespace consist {
namespace {

/// Of one rank.
struct Sums {
  double compute = 0, optimizer = 0, from_host = 0, to_host = 0;
  std::map<int, double> axes;  // bytes sent
};

Sums add_up(const Program& program, const MachineModel& machine) {
  Sums sums;
  for (const Instruction& i : program.instructions) {
    if (i.op->is_collective()) {
      const int axis = static_cast<int>(i.attributes.integer("axis"));
      sums.axes[axis] += static_cast<double>(i.op->bytes_sent(message_bytes(program, i), program.mesh.size_of(axis)));
    } else if (i.queue == Queue::host_to_device() || i.queue == Queue::device_to_host()) {
      const double seconds = static_cast<double>(message_bytes(program, i)) / machine.host;
      (i.queue == Queue::host_to_device() ? sums.from_host : sums.to_host) += seconds;
    } else if (i.op->touches_memory() && first_operand(i) != no_tensor) {
      (i.tag.phase == Phase::optimizer ? sums.optimizer : sums.compute) += seconds_of(program, i, machine.device);
    }
  }
  return sums;
}

bool is_inside_node(const Program& program, int axis, int ranks_per_node) {
  const std::vector<int> group = program.mesh.group(program.rank, axis);
  return std::all_of(group.begin(), group.end(), [&](int rank) { return rank / ranks_per_node == group[0] / ranks_per_node; });
}

std::string milliseconds(double seconds) {
  return fixed_text(seconds * 1e3, 1) + " ms";
}

}  // namespace

StepEstimate estimate_step(std::span<const Program* const> stages, const MachineModel& machine) {
  StepEstimate e;
  std::map<int, double> axes;
  for (const Program* stage : stages) {
    const Sums sums = add_up(*stage, machine);
    e.compute += sums.compute / static_cast<double>(stages.size());
    e.optimizer = std::max(e.optimizer, sums.optimizer);
    e.from_host = std::max(e.from_host, sums.from_host);
    e.to_host = std::max(e.to_host, sums.to_host);
    for (const auto& [axis, bytes] : sums.axes) axes[axis] = std::max(axes[axis], bytes);
  }
  if (stages.size() > 1) e.idle_share = simulate(stages, TimelineCost::by_ops).idle_share();
  const double busy = e.compute / (1 - e.idle_share) + e.optimizer;
  e.hidden = std::max({busy, e.from_host, e.to_host});
  e.exposed = busy + e.from_host + e.to_host;
  for (const auto& [axis, bytes] : axes) {
    const bool inside = is_inside_node(*stages[0], axis, machine.ranks_per_node);
    const double seconds = bytes / (inside ? machine.node : machine.network);
    e.axes.push_back({stages[0]->mesh.axis(axis).name, inside, bytes, seconds});
    e.hidden = std::max(e.hidden, seconds);
    e.exposed += seconds;
  }
  return e;
}

std::string fit_text(std::int64_t planned_bytes, int rank, const MachineModel& machine) {
  const auto capacity = static_cast<std::int64_t>(machine.capacity);
  if (capacity <= 0) return {};
  if (planned_bytes <= capacity) {
    return "Memory: the plan takes " + bytes_text(planned_bytes) + " of the " + bytes_text(capacity) + " of a rank of " +
           machine.name + " (" + fixed_text(100.0 * static_cast<double>(planned_bytes) / machine.capacity, 0) + "%).\n";
  }
  return "DOES NOT FIT: rank " + std::to_string(rank) + " needs " + bytes_text(planned_bytes) + ", a rank of " + machine.name +
         " has " + bytes_text(capacity) +
         ". The estimate is of a machine with more memory. What would make it fit: a smaller --batch with more --accumulation, "
         "--recompute full, or more ranks to divide parameters and states over (zero3-offload, tp-sp, pipeline)\n";
}

std::string estimate_text(const StepEstimate& e, const MachineModel& machine, int ranks, double tokens, double model_flops) {
  const auto speed = [&](double seconds) {
    const double rate = tokens / seconds;
    return milliseconds(seconds) + ", " + si_text(rate) + " tokens/s, model " + si_text(rate * model_flops / ranks) +
           "FLOP/s per rank (" + fixed_text(100 * rate * model_flops / ranks / machine.device.peak, 0) + "% of the bf16 peak)";
  };
  std::string text = "Estimate of a step, from costs over rates, not measured: " + machine.text() + "\n";
  text += "  forward and backward " + milliseconds(e.compute);
  if (e.idle_share > 0) text += ", and idle for " + fixed_text(100 * e.idle_share, 1) + "% of their time in the pipeline";
  text += "; optimizer " + milliseconds(e.optimizer) + "\n";
  if (e.from_host + e.to_host > 0)
    text += "  host: " + milliseconds(e.from_host) + " of copies from it, " + milliseconds(e.to_host) + " to it\n";
  for (const AxisEstimate& axis : e.axes) {
    text += "  " + axis.axis + ": " + bytes_text(static_cast<std::int64_t>(axis.bytes)) + " sent by a rank " +
            (axis.inside_node ? "within its node" : "to other nodes") + ", " + milliseconds(axis.seconds) + "\n";
  }
  text += "  a step, each of these beside the others: " + speed(e.hidden) + "\n";
  return text + "  a step, one after the other:             " + speed(e.exposed) + "\n";
}

}  // namespace consist
