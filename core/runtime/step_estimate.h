// An estimate of a step's time on a machine that is described, not present: costs of the program's instructions over its rates.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"
#include "core/runtime/machine_model.h"

namespace consist {

/// What goes over the links of an axis in one step, on the stage that sends the most.
struct AxisEstimate {
  std::string axis;
  bool inside_node = false;
  double bytes = 0;    ///< sent by a rank
  double seconds = 0;  ///< if nothing else uses its link
};

struct StepEstimate {
  double compute = 0;                 ///< seconds of forward and backward, mean of the stages
  double idle_share = 0;              ///< of a pipeline's forward and backward, by the costs of its ops; 0 without one
  double optimizer = 0;               ///< seconds, of the stage that takes the longest
  double from_host = 0, to_host = 0;  ///< seconds of copies; the two directions run side by side
  std::vector<AxisEstimate> axes;
  double hidden = 0;   ///< seconds of a step if communication and copies run beside compute as far as one queue each allows
  double exposed = 0;  ///< seconds if nothing runs beside anything
};

/// `stages`: the programs of the ranks along Program::stage_axis, one if there is none. Every instruction takes its FLOPs over
/// the rate of products (or attention), or its bytes over the memory's rate, whichever is longer; messages their bytes over the
/// link's rate. No latencies.
CONSIST_API StepEstimate estimate_step(std::span<const Program* const> stages, const MachineModel& machine);

/// Whether a plan of `planned_bytes`, of the rank that needs the most, fits the machine's memory, for people; empty where its
/// size is not known.
CONSIST_API std::string fit_text(std::int64_t planned_bytes, int rank, const MachineModel& machine);

/// For people. `tokens` of all ranks per step; `model_flops` per token, as docs/metrics.md counts them.
CONSIST_API std::string estimate_text(const StepEstimate& estimate, const MachineModel& machine, int ranks, double tokens,
                                      double model_flops);

}  // namespace consist
