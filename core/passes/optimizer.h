// The optimizer part of the step: whatever reduction of gradients is still due, global gradient clipping, AdamW.
#pragma once

#include "consist/precision.h"
#include "consist/program.h"

namespace consist {

struct OptimizerSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  bool bias_correction = true;  ///< of both moments; in the numbers of each step (trainer.h), not in the program
  double max_norm = 1.0;  ///< gradients are scaled down to this global norm; 0: not clipped
};

/// Appends the optimizer. Creates the optimizer states ("<parameter>.master", ".moment1", ".moment2"; they lie as the gradients
/// do), the inputs "hyper" (see op adamw) and "votes" (a scalar of each rank), and the replicated metrics "loss", "grad_norm" and
/// "stop" (the votes' sum).
CONSIST_API void append_optimizer(Program& program, const DTypes& dtypes, const OptimizerSettings& settings);

/// For programs without an optimizer: the loss becomes the replicated metric "loss".
CONSIST_API void append_metrics(Program& program);

}  // namespace consist
