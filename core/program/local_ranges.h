// Ranges of a logical tensor's elements that a rank holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "consist/export.h"
#include "consist/mesh.h"

namespace consist {

/// `count` elements that are contiguous both in the logical tensor (row-major) and in the rank's local one.
struct LocalRange {
  std::int64_t logical = 0;  ///< index of the first element in the logical tensor
  std::int64_t local = 0;    ///< and in the local one
  std::int64_t count = 0;
};

/// The ranges of `rank`'s part, in local order; neighbours are merged. Partial placements count as replicated.
CONSIST_API std::vector<LocalRange> local_ranges(const Shape& shape, const Placements& placements, const Mesh& mesh, int rank);

/// Cuts ranges in local order to [first, first + count) of the local elements, of which `first` becomes local index 0.
CONSIST_API std::vector<LocalRange> ranges_within(std::span<const LocalRange> ranges, std::int64_t first, std::int64_t count);

}  // namespace consist
