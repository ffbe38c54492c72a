// Checks of the rules that consist/program.h states.
#pragma once

#include <span>

#include "consist/program.h"

namespace consist {

/// Throws ProgramError naming the instruction and the broken rule: types, shapes, placements, use before definition, double
/// definition, reads of overwritten values, views outside of their storage, waits for later instructions. Near linear.
CONSIST_API void verify(const Program& program);

/// Whether all ranks come through their programs: `programs[r]` is what rank r runs, all over the same mesh. Each collective
/// needs every member of its group at the same collective (same op, axis and bytes) at the head of its queue, each message its
/// receiver, as if nothing were buffered on the way. Throws ProgramError
/// that names the ranks and the instructions where they block each other.
CONSIST_API void verify_collectives(std::span<const Program* const> programs);

}  // namespace consist
