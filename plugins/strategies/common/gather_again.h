// Gathers activations again in backward instead of keeping them.
#pragma once

#include "consist/program.h"

namespace consist::strategies {

/// Lets backward gather again the tensors that forward gathers along the sequence over mesh axis `axis` (outputs of norms, keys
/// and values), before the first instruction that reads them there: a rank then keeps its own tokens instead of all.
void gather_again(Program& step, int axis);

}  // namespace consist::strategies
