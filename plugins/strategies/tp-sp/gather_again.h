// What is gathered for forward's products is not kept for backward.
#pragma once

#include "consist/program.h"

namespace consist::tensor_parallel {

/// Lets backward gather the outputs of norms again, in front of the first instruction that reads one there: a rank then keeps its
/// own tokens of them instead of all.
void gather_again(Program& step, int axis);

}  // namespace consist::tensor_parallel
