// Capacity: the rows of tokens that a rank's experts have memory for (Op::dispatches_tokens with attribute "axis").
#pragma once

#include <cstdint>
#include <string>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// A run whose rows had no place makes its programs again with so many times the capacity.
inline constexpr double room_growth = 1.5;

/// True if some instruction may have more rows than its capacity.
CONSIST_API bool may_overflow(const Program& program);

/// Gives these instructions `factor` times the capacity, before shardings are propagated.
CONSIST_API void grow_room(Program& forward, double factor);

/// The least capacity of these instructions on this rank, 0 where it has none.
struct Room {
  std::int64_t rows = 0;    ///< at its experts
  std::int64_t tokens = 0;  ///< sent to it by one rank, where tokens are sent to the ranks of their experts
};
CONSIST_API Room least_room(const Program& program);

/// Makes the output "overflow" of one micro-batch: the sum over this rank's instructions, 0 where it has none.
CONSIST_API void sum_overflow(Program& segment);

/// Text on the rows beyond the capacity in a program whose overflow is `missing`: rows and, where tokens are sent, tokens.
CONSIST_API std::string without_room_text(const Program& program, double missing);

/// Error text for an overflow: without_room_text(), the capacity, and the capacity that would have sufficed.
CONSIST_API std::string overflow_text(const Program& program, double missing);

}  // namespace consist
