// An estimate of a step's time on a machine that need not be there: its program, simulated with the durations of the machine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "consist/export.h"
#include "consist/program.h"
#include "core/cost/simulator.h"
#include "core/cost/step_errors.h"

namespace consist {

/// Traffic over the links of a set of axes in one step, on the stage that sends the most.
struct AxisEstimate {
  std::string axis;  ///< "data", "data+context"
  bool inside_node = false;
  double bytes = 0;    ///< sent by a rank
  double seconds = 0;  ///< of these transfers, if nothing else uses their links
  double exposed = 0;  ///< seconds in which compute waited for the axis, mean of the stages
};

struct StepEstimate {
  double seconds = 0;                 ///< of the step
  ErrorBar error;                     ///< of `seconds`; of no kinds: nobody asked
  double compute = 0;                 ///< seconds of forward and backward, mean of the stages
  double optimizer = 0;               ///< seconds, of the stage that takes the longest
  double from_host = 0, to_host = 0;  ///< seconds of copies, of the stage that takes the longest
  double for_copies = 0;              ///< seconds in which compute waited for copies, mean of the stages
  double for_ranks = 0;               ///< ... for other stages of the pipeline
  std::vector<AxisEstimate> axes;
};

/// `stages`: the planned programs of the ranks along Program::stage_axis, one if there is none, and their simulation.
CONSIST_API StepEstimate estimate_step(std::span<const Program* const> stages, const Simulation& simulation);
/// The same of a simulation with estimated_durations().
CONSIST_API StepEstimate estimate_step(std::span<const Program* const> stages);

/// Tells the user if a plan of `planned_bytes`, those of the rank that needs the most, fits the machine's memory; empty if the
/// size of that memory is not known.
CONSIST_API std::string fit_text(std::int64_t planned_bytes, int rank, const Machine& machine);

/// For people. `tokens` of all ranks per step; `model_flops` per token, as docs/metrics.md counts them.
CONSIST_API std::string estimate_text(const StepEstimate& estimate, const Machine& machine, int ranks, double tokens,
                                      double model_flops);

}  // namespace consist
