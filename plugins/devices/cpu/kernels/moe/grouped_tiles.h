// Rows of experts in tiles: stretches of at most so many rows of one expert, since products have fixed sizes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace consist::cpu {

/// Rows of a tile: about those of an expert where all have the same.
inline std::int64_t tile_rows(std::int64_t rows, std::int64_t experts) {
  const auto mean = static_cast<std::uint64_t>(std::max<std::int64_t>(rows / experts, 1));
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::bit_ceil(mean)), 8, 256);
}

/// A stretch of an expert's rows.
struct Tile {
  std::int64_t expert, row, rows;
  bool first;  ///< of its expert
};

/// Calls visit(tile) for the rows of all experts and returns how many rows that are.
template <typename Visit>
std::int64_t each_tile(const std::int32_t* counts, std::int64_t experts, std::int64_t size, const Visit& visit) {
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t end = row + counts[e];
    for (bool first = true; row < end; first = false) {
      const std::int64_t rows = std::min(size, end - row);
      visit(Tile{e, row, rows, first});
      row += rows;
    }
  }
  return row;
}

}  // namespace consist::cpu
