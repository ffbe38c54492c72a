// Tokens that travel to their experts by all_to_all.
#pragma once

#include "consist/program.h"

namespace consist::expert_parallel {

/// Puts moe_send in front of every instruction that dispatches tokens, and moe_return behind the sum of its rows: what a rank
/// dispatches is then what was sent to it. `capacity`: the tokens that a rank has room for from each other, as a multiple of what
/// would come if all experts were chosen equally often; never more than all that the other has. `forward` has not been placed
/// yet.
void exchange_tokens(Program& forward, AxisSet axes, double capacity);

}  // namespace consist::expert_parallel
