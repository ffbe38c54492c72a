// Computes one instruction on one rank, in fp64, from the reference formulas (core/reference).
#pragma once

#include "core/interpreter/arena.h"

namespace consist::interpreter {

/// Reads the inputs of instruction `id` from the rank's memory, computes, and writes the outputs. Casts and quantization do not
/// round, so that a program of any precision computes what that of fp32 does. An op of a plugin that has no formula is computed
/// by the plugin's own kernel (compute_kernel.h). Throws ProgramError for an op that has neither, and what Arena throws.
void compute(Arena& arena, InstructionId id);

}  // namespace consist::interpreter
