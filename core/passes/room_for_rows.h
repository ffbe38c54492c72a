// Rows of tokens at their experts where a rank has room for a number of them (Op::dispatches_tokens with attribute "axis").
#pragma once

#include <cstdint>
#include <string>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Whether some instruction may have more rows than room.
CONSIST_API bool may_overflow(const Program& program);

/// Gives these instructions `factor` times the room, before shardings are propagated.
CONSIST_API void grow_room(Program& forward, double factor);

/// The fewest rows that one of these instructions has room for on this rank; 0: there is none.
CONSIST_API std::int64_t least_room(const Program& program);

/// Makes Program::overflow of one micro-batch: the sum over this rank's instructions, 0 where it has none.
CONSIST_API void sum_overflow(Program& segment);

/// What to say where `missing` rows had no room: how many have, and how much room would have done.
CONSIST_API std::string overflow_text(const Program& program, double missing);

}  // namespace consist
