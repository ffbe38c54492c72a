// Checks of the rules that consist/program.h states.
#pragma once

#include "consist/program.h"

namespace consist {

/// Throws ProgramError naming the instruction and the broken rule: types, shapes, placements, use before definition, double
/// definition, reads of overwritten values, views outside of their storage, waits for later instructions, ids that do not exist,
/// parameters and states of one name, states that are partial sums. Never crashes, whatever the program holds. Near linear.
CONSIST_API void verify(const Program& program);

/// The same but for types, placements and memory: for a program whose inputs and parameters have them while what follows from
/// that is not carried on yet (between ParallelStrategy::partition and propagate_shardings).
CONSIST_API void verify_unplaced(const Program& program);

}  // namespace consist
