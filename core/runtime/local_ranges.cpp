#include "core/runtime/local_ranges.h"

#include <array>

namespace consist {

std::vector<LocalRange> local_ranges(const Shape& shape, const Placements& placements, const Mesh& mesh, int rank) {
  const Shape local = local_shape(shape, placements, mesh);
  // Where the local part starts in each dimension. Axes that shard the same dimension nest, the first one outermost.
  std::array<std::int64_t, Shape::max_rank> start{};
  for (int dim = 0; dim < shape.rank(); ++dim) {
    std::int64_t extent = shape[dim];
    for (int axis = 0; axis < mesh.axes(); ++axis) {
      if (!placements[axis].is_shard(dim)) continue;
      extent /= mesh.size_of(axis);
      start[static_cast<std::size_t>(dim)] += extent * mesh.coordinate(rank, axis);
    }
  }
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

}  // namespace consist
