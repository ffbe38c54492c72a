// The order of tokens: checks that ops allow a sequence in zigzag order.
#pragma once

#include "consist/program.h"

namespace consist::context_parallel {

/// Throws UsageError that names an op which works on tokens of forward and does not say that they may lie in zigzag order
/// (Op::token_order()), or a constant that lies in order of position beside tokens that do not. `program` is forward, or a micro-batch
/// with its backward part, of any pipeline stage. REQUIRES: Program::zigzag is not 0.
void check_token_order(const Program& program);

}  // namespace consist::context_parallel
