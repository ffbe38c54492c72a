// Inputs of collectives in flight: memory that products beside them must not be given.
#pragma once

#include "consist/program.h"

namespace consist::strategies {

enum class Held {
  read_last,    ///< inputs that the collective reads last
  read_beside,  ///< also those that instructions beside the collective read: more memory
};

/// Keeps the memory of the inputs of collectives of mesh axis `axis` until the first instruction that waits for them anyway. If
/// it were free right after the collective in program order, it would be planned for instructions beside it, which would then
/// have to wait for the collective to end.
void hold_inputs(Program& step, int axis, Held held = Held::read_last);

}  // namespace consist::strategies
