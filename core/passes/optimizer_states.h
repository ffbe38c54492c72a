// The places of an optimizer's states: they follow from their shapes (consist/optimizer.h) and the gradient's.
#pragma once

#include <functional>
#include <string>

#include "consist/optimizer.h"
#include "consist/program.h"

namespace consist {

/// The name of the strategy of an axis of the mesh, for messages; null: axes are named alone.
using NameOfStrategy = std::function<std::string(int axis)>;

/// Names for messages.
struct OptimizerNames {
  std::string optimizer = "the optimizer";  ///< "optimizer 'adamw'"
  NameOfStrategy strategy = nullptr;
};

/// The placements of a parameter's state beside `gradient`, which is not partial. ERRORS: UsageError that names the optimizer and
/// the strategy where shards end within a block.
CONSIST_API Placements placements_of(const OptimizerState& state, const std::string& parameter, const Tensor& gradient,
                                     const Mesh& mesh, const OptimizerNames& names);

/// Checks what states() and evaluated() returned for a parameter of that shape. ERRORS: ProgramError that names the state.
CONSIST_API void check_states(const std::vector<OptimizerState>& states, const std::vector<double>& evaluated,
                              const std::string& parameter);

}  // namespace consist
