// The optimizer part of the step: reductions of gradients that are still partial, global gradient clipping, the updates.
#pragma once

#include "consist/precision.h"
#include "consist/program.h"
#include "core/passes/optimizer_states.h"
#include "core/passes/optimizer_uses.h"

namespace consist {

/// Settings that every optimizer shares.
struct OptimizerSettings {
  double weight_decay = 0.1;
  double max_norm = 1.0;  ///< gradients are scaled down to this global norm; 0: not clipped
  std::vector<OptimizerRule> rules;  ///< --optimizer-rules
};

/// Appends the optimizer. Creates the masters and states ("<parameter>.master", "<parameter>.moment1"; they lie as
/// placements_of() says), the inputs OptimizerUse::scalars (Optimizer::write_scalars()) and "stop_requests" (a scalar of each
/// rank), and the replicated metrics "loss", "grad_norm" and "stop" (the stop requests' sum). `targets`: those of the step over
/// all ranks, by which the loss was divided; where a mask decides which count ("loss_count" of Program::outputs), loss and
/// gradients become means over those, and the metric "loss_count" says how many. Throws ProgramError that names the tensor that
/// the optimizer did not update, and as placements_of() and check_states().
CONSIST_API void append_optimizer(Program& program, const DTypes& dtypes, const OptimizerUses& optimizers,
                                  const OptimizerSettings& settings, double targets, const NameOfStrategy& strategies = nullptr);

/// For programs without an optimizer: the loss becomes the replicated metric "loss", likewise.
CONSIST_API void append_metrics(Program& program, double targets);

}  // namespace consist
