#include "core/program/local_ranges.h"

#include <algorithm>

namespace consist {

std::vector<LocalRange> local_ranges(const Shape& shape, const Placements& placements, const Mesh& mesh, int rank) {
  const LocalPart part = local_part(shape, placements, mesh, rank);
  if (const AxisSet flat = placements.flat_axes() & mesh.all_axes(); !flat.empty()) {
    Placements others = placements;
    others.set(flat, Placement::replicate());
    return ranges_within(local_ranges(shape, others, mesh, rank), part.origin[0], part.shape[0]);
  }
  const Shape& local = part.shape;
  const Origin& start = part.origin;
  const std::int64_t row = local.last();
  std::vector<LocalRange> ranges;
  for (std::int64_t r = 0; r < local.rows() && row > 0; ++r) {
    std::int64_t rest = r, logical = shape.rank() == 0 ? 0 : start[static_cast<std::size_t>(shape.rank() - 1)],
                 stride = shape.last();
    for (int dim = shape.rank() - 2; dim >= 0; --dim) {
      logical += (start[static_cast<std::size_t>(dim)] + rest % local[dim]) * stride;
      rest /= local[dim];
      stride *= shape[dim];
    }
    if (!ranges.empty() && ranges.back().logical + ranges.back().count == logical) {
      ranges.back().count += row;
    } else {
      ranges.push_back({logical, r * row, row});
    }
  }
  return ranges;
}

std::vector<LocalRange> ranges_within(std::span<const LocalRange> ranges, std::int64_t first, std::int64_t count) {
  std::vector<LocalRange> inside;
  auto range = std::partition_point(ranges.begin(), ranges.end(),
                                    [&](const LocalRange& before) { return before.local + before.count <= first; });
  for (; range != ranges.end() && range->local < first + count; ++range) {
    const std::int64_t begin = std::max(range->local, first), end = std::min(range->local + range->count, first + count);
    if (begin < end) inside.push_back({range->logical + begin - range->local, begin - first, end - begin});
  }
  return inside;
}

}  // namespace consist
