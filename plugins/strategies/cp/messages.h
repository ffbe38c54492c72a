// Messages around attention.
#pragma once

#include "consist/program.h"

namespace consist::context_parallel {

/// Makes one collective of neighbours over mesh axis `axis` that move alike: keys with values, gradients of them. They are then one
/// start instead of two.
void join_messages(Program& step, int axis);

}  // namespace consist::context_parallel
