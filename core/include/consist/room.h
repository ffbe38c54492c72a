// Capacity: memory for rows of tokens at their experts, or in flight to these (Op::dispatches_tokens).
#pragma once

#include <algorithm>
#include <cstdint>

namespace consist {

/// A rank's capacity is a multiple of so many rows: matrix products are faster at such sizes.
constexpr std::int64_t room_unit = 16;

/// The least capacity over `ranks` ranks, which share it equally, that holds `rows` and is a multiple of room_unit on each; at
/// least one unit each.
constexpr std::int64_t rounded_room(std::int64_t rows, std::int64_t ranks) noexcept {
  const std::int64_t multiple = room_unit * ranks;
  return (std::max<std::int64_t>(rows, 1) + multiple - 1) / multiple * multiple;
}

}  // namespace consist
