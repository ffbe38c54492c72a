// Evaluations and generated text read the weights that the optimizer says (Optimizer::evaluated()).
#pragma once

#include "consist/precision.h"
#include "consist/program.h"
#include "core/passes/optimizer_uses.h"

namespace consist {

/// True if evaluated() names other weights than those of training.
CONSIST_API bool reads_others(const std::vector<double>& evaluated);

/// Lets the forward part of an evaluation, placed on the mesh and in the precision's dtypes, read them. Masters and the states
/// that are added become the program's; they lie as the parameter does, which TrainingState compares with the step's. Throws as
/// check_states().
CONSIST_API void read_evaluated_weights(Program& forward, const DTypes& dtypes, const OptimizerUses& optimizers);

}  // namespace consist
