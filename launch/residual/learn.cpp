#include "launch/residual/learn.h"

#include <algorithm>
#include <optional>

#include "consist/dtype.h"

namespace consist::launch {
namespace {

bool is_computed(const InstructionGroup& group) {
  return group.part != "copies" && !group.part.starts_with("communication:");
}

/// Timing makes instructions longer. Steps of the steady state are not timed on GPUs: where they are shorter than what ran in a
/// timed one, instructions are in them by so much.
double scale_of(const StepParts& step) {
  const auto gaps = step.parts.find("gaps");
  const double ran = step.timed_seconds - (gaps == step.parts.end() ? 0 : gaps->second);
  return ran > 0 ? std::min(1.0, step.step_seconds / ran) : 1;
}

/// As machine files name the operands of rates.
std::string class_of(DType dtype) {
  const std::size_t bytes = size_of(dtype);
  return bytes == 1 ? "fp8" : bytes == 2 ? "bf16" : "fp32";
}

/// False if the machine has no times of the op.
bool scale_times(DeviceRates& device, const std::string& op, DType dtype, double ratio) {
  bool found = false;
  for (DeviceRates::OpTimes& times : device.times) {
    if (times.op != op || times.dtype != dtype) continue;
    for (DeviceRates::OpTimes::Point& point : times.points) point.seconds *= ratio;
    times.source = FigureSource::measured_here;
    found = true;
  }
  return found;
}

void set_reached(DeviceRates& device, const std::string& op, DType dtype, const OpSums& sums) {
  const double peak = device.peak(dtype);
  if (peak <= 0) return;
  const std::string kind = class_of(dtype);
  std::erase_if(device.reached, [&](const DeviceRates::Reached& r) { return r.op == op && r.dtype == kind; });
  const double share = std::min(1.0, sums.flops / sums.measured / peak);
  device.reached.insert(device.reached.begin(), {op, kind, 0, {share, FigureSource::measured_here}});
}

}  // namespace

LearnedOps ops_of(std::span<const StepParts* const> steps) {
  LearnedOps ops;
  for (const StepParts* step : steps) {
    if (!step->simulated_groups) continue;
    const double scale = scale_of(*step);
    for (const InstructionGroup& group : step->groups) {
      if (!is_computed(group) || group.simulated_own_seconds <= 0 || group.own_seconds <= 0) continue;
      OpSums& sums = ops[{group.text.substr(0, group.text.find(' ')), group.dtype}];
      sums.measured += scale * group.own_seconds;
      sums.simulated += group.simulated_own_seconds;
      sums.flops += group.flops;
    }
  }
  return ops;
}

Machine learned_machine(Machine machine, const LearnedOps& ops) {
  OpSums by_memory;
  for (const auto& [key, sums] : ops) {
    const std::optional<DType> dtype = dtype_of(key.second);
    if (!dtype || scale_times(machine.device, key.first, *dtype, sums.ratio())) continue;
    // An op with FLOPs may be bound by memory: the share of the peak then says nothing.
    const bool computes = sums.flops > 0 && sums.flops / machine.device.peak(*dtype) > 0.2 * sums.simulated;
    if (computes) {
      set_reached(machine.device, key.first, *dtype, sums);
    } else {
      by_memory.measured += sums.measured;
      by_memory.simulated += sums.simulated;
    }
  }
  if (by_memory.measured > 0)
    machine.device.memory_rate = {machine.device.memory_rate.value / by_memory.ratio(), FigureSource::measured_here};
  return machine;
}

}  // namespace consist::launch
