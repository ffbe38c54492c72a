// Memory that products beside a collective must not be given.
#pragma once

#include "consist/program.h"

namespace consist::strategies {

enum class Held {
  read_last,    ///< by a collective, and nothing behind it
  read_beside,  ///< by what runs beside the collective, too: more memory
};

/// Keeps the memory of what collectives of mesh axis `axis` read until the first instruction that waits for them anyway. Free
/// behind the collective, as the program has it, it would be planned for what is computed beside it, which would then have to
/// wait for the collective to end.
void hold_inputs(Program& step, int axis, Held held = Held::read_last);

}  // namespace consist::strategies
