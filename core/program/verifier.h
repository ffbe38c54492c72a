// Checks of the rules that consist/program.h states.
#pragma once

#include <span>

#include "consist/program.h"

namespace consist {

/// Throws ProgramError naming the instruction and the broken rule: types, shapes, placements, use before definition, double
/// definition, reads of overwritten values, views outside of their storage, waits for later instructions. Near linear.
CONSIST_API void verify(const Program& program);

/// Whether all ranks come through their programs: `programs[r]` is what rank r runs, all over the same mesh. See verify_streams
/// in core/program/collective_stream.h, which does it.
CONSIST_API void verify_collectives(std::span<const Program* const> programs);

}  // namespace consist
