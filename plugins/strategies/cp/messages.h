// Messages around attention.
#pragma once

#include "consist/program.h"

namespace consist::context_parallel {

/// True if `i` is a collective over mesh axis `axis` that moves activations, or gradients of them.
bool moves_activations(const Program& program, const Instruction& i, int axis);

/// Makes one collective of neighbours over mesh axis `axis` that move alike: keys with values, gradients of them. They are then one
/// start instead of two.
void join_messages(Program& step, int axis);

}  // namespace consist::context_parallel
