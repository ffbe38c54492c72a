// Rows of tokens at their experts where a rank has room for a number of them (Op::dispatches_tokens with attribute "axis").
#pragma once

#include <cstdint>
#include <string>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// True if some instruction may have more rows than room.
CONSIST_API bool may_overflow(const Program& program);

/// Gives these instructions `factor` times the room, before shardings are propagated.
CONSIST_API void grow_room(Program& forward, double factor);

/// The least room of these instructions on this rank, 0 where it has none.
struct Room {
  std::int64_t rows = 0;    ///< at its experts
  std::int64_t tokens = 0;  ///< sent to it by one rank, where tokens travel to the ranks of their experts
};
CONSIST_API Room least_room(const Program& program);

/// Makes Program::overflow of one micro-batch: the sum over this rank's instructions, 0 where it has none.
CONSIST_API void sum_overflow(Program& segment);

/// Text on the rows without room, in a program whose overflow is `missing`: it counts rows and, where tokens travel, those too.
CONSIST_API std::string without_room_text(const Program& program, double missing);

/// Error text for an overflow: without_room_text(), how much has room, and how much room would have sufficed.
CONSIST_API std::string overflow_text(const Program& program, double missing);

}  // namespace consist
