// Memory that products beside a collective must not be given.
#pragma once

#include "consist/program.h"

namespace consist::strategies {

/// Keeps the memory of what collectives of mesh axis `axis` read until the first instruction that waits for them anyway. Free
/// behind the collective, as the program has it, it would be planned for what is computed beside it, which would then have to
/// wait for the collective to end.
void hold_inputs(Program& step, int axis);

}  // namespace consist::strategies
