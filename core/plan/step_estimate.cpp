#include "core/plan/step_estimate.h"

#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/plan/machine_choice.h"

namespace consist {

std::string fit_text(std::int64_t planned_bytes, int rank, const Machine& machine) {
  const auto capacity = static_cast<std::int64_t>(machine.device.memory_bytes.value);
  if (capacity <= 0) return {};
  if (planned_bytes <= capacity) {
    return "Memory: the plan takes " + bytes_text(planned_bytes) + " of the " + bytes_text(capacity) + " of a rank of " +
           machine.name + " (" + percent_text(static_cast<double>(planned_bytes) / machine.device.memory_bytes.value) + ").\n";
  }
  return "DOES NOT FIT: rank " + std::to_string(rank) + " needs " + bytes_text(planned_bytes) + ", a rank of " + machine.name +
         " has " + bytes_text(capacity) +
         ". The estimate is of a machine with more memory. What would make it fit: a smaller --batch with more --accumulation, "
         "--recompute full, --offload-activations all, or more ranks to divide parameters and states over (zero3-offload, tp-sp, "
         "pipeline)\n";
}

std::string estimate_text(std::span<const Program* const> stages, const StepTime& time, const Machine& machine, int ranks,
                          double tokens, double model_flops) {
  const auto waits = [&](double seconds) {
    return milliseconds_text(seconds) + " (" + percent_text(seconds / time.seconds, 1) + ")";
  };
  const double optimizer = time.of(Work::optimizer);
  double compute = -optimizer;
  for (const double seconds : time.work) compute += seconds;
  std::string text = "Estimate of a step, simulated with costs over rates, not measured: " + text_of(machine) + "\n";
  text += "  forward and backward " + milliseconds_text(compute) + "; optimizer " + milliseconds_text(optimizer) + "\n";
  if (time.bubble > 0) text += "  pipeline: ranks wait " + waits(time.bubble) + " for other stages\n";
  const StepTransfers transfers = transfers_of(stages);
  if (transfers.from_host + transfers.to_host > 0)
    text += "  host: " + milliseconds_text(transfers.from_host) + " of copies from it, " + milliseconds_text(transfers.to_host) +
            " to it; compute waits " + waits(time.copies) + " for them\n";
  for (const AxisTransfers& axis : transfers.axes) {
    const std::string name = stages[0]->mesh.text(axis.axes);
    const auto exposed = time.communication.find(name);
    text += "  " + name + ": " + bytes_text(static_cast<std::int64_t>(axis.bytes)) + " sent by a rank " +
            (costs_of(*stages[0]).crosses_nodes(axis.axes) ? "to other nodes" : "within its node") + ", " +
            milliseconds_text(axis.seconds) + "; compute waits " +
            waits(exposed == time.communication.end() ? 0 : exposed->second) + " for it\n";
  }
  const double rate = tokens / time.seconds, model = rate * model_flops / ranks;
  text += "  a step: " + milliseconds_text(time.seconds) +
          (time.error.value ? " \u00b1" + percent_text(*time.error.value) : std::string()) + ", " + si_text(rate) +
          " tokens/s, model " + si_text(model) + "FLOP/s per rank (" + percent_text(model / machine.device.peak_bf16.value) +
          " of the bf16 peak)\n";
  return time.error.kinds.empty() ? text : text + "  error: " + text_of(time.error) + "\n";
}

}  // namespace consist
