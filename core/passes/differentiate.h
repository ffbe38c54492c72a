// Reverse-mode differentiation of the program.
#pragma once

#include "consist/dtype.h"
#include "consist/program.h"

namespace consist {

/// Appends the backward part of `program.loss` and sets Parameter::gradient (accumulated in `gradient_dtype`). Forward
/// instructions that the backward part makes superfluous are removed. A parameter that the loss does not depend on is a
/// ProgramError.
CONSIST_API void differentiate(Program& program, DType gradient_dtype);

/// Removes instructions none of whose outputs are read, updated in place, states, the loss or gradients. Linear.
CONSIST_API void remove_dead(Program& program);

}  // namespace consist
