// Tokens that travel to the ranks of their experts, in fp64: moe_send, moe_return and their gradients, of one rank of a group.
#pragma once

#include "core/reference/moe.h"

namespace consist::reference {

/// sent [1, ranks, room, c], sent_experts and sent_weights [1, ranks, room, choices], slots [batch, sequence, ranks], overflow. A
/// token goes once to each rank that has one of its experts, of which each rank has `count`/ranks.
Values moe_send(const Value& x, const Value& experts, const Value& weights, std::int64_t ranks, std::int64_t room,
                std::int64_t count);

/// Sums of the rows [1, ranks, room, c] of each token.
Value moe_return(const Value& rows, const Value& slots);

Value moe_return_grad(const Value& dy, const Value& slots, std::int64_t room);

/// dx, dweights: a choice's weight counts at the rank of its expert alone.
Values moe_send_grad(const Value& dsent, const Value& dsent_weights, const Value& slots, const Value& experts,
                     std::int64_t count);

}  // namespace consist::reference
