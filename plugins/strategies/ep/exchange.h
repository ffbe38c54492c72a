// Sends tokens to their experts by all_to_all.
#pragma once

#include "consist/program.h"

namespace consist::expert_parallel {

/// Puts moe_send in front of every instruction that dispatches tokens, and moe_return behind the sum of its rows: a rank then
/// dispatches the tokens that were sent to it. `capacity`: tokens that a rank can take from each other rank, as a multiple of
/// those that would come if all experts were chosen equally often; at most all tokens of the other. `forward` has not been placed
/// yet.
void exchange_tokens(Program& forward, AxisSet axes, double capacity);

}  // namespace consist::expert_parallel
