// What is gathered for forward's products is not kept for backward.
#pragma once

#include "consist/program.h"

namespace consist::strategies {

/// Lets backward gather again what forward gathers along the sequence over mesh axis `axis` (outputs of norms, keys and values), in front
/// of the first instruction that reads it there: a rank then keeps its own tokens instead of all.
void gather_again(Program& step, int axis);

}  // namespace consist::strategies
