// The mesh: divides the ranks of a job between strategies.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/mesh.h"
#include "consist/strategy.h"

namespace consist {

/// One strategy and how many ranks it spans (0: the ranks that the others leave).
struct StrategyUse {
  std::string name;
  const ParallelStrategy* strategy = nullptr;
  int size = 0;
  /// Sizes of the axes over which these are split, the outermost first; 0: the ranks that are left. Empty: one axis.
  std::vector<int> split = {};
  AxisSet axes = {};      ///< of a layout's: where it lies in the mesh
  AxisSet works_on = {};  ///< of a layout's: what its functions get, `axes` and what it takes (AxisRequest::takes_shared)
};

/// The mesh and how the batch is divided over it.
struct Layout {
  Mesh mesh;                        ///< axes of size 1 are left out
  /// The strategies that have an axis to work on or are called without one (OnOneRank), in the order of the mesh's axes: by
  /// AxisRequest::distance, the largest outermost.
  std::vector<StrategyUse> active;
  std::vector<std::size_t> partition_order;  ///< indices of `active`: those that share parameters first
  std::vector<std::size_t> schedule_order;   ///< indices of `active`, by AxisRequest::turn; of one axis name the inner first
  AxisSet batch_axes;                        ///< over which sequences are divided

  /// The strategy that an axis of the mesh belongs to.
  const StrategyUse& strategy_of(int axis) const;
  int batch_ranks() const;          ///< product of the sizes of batch_axes
  int batch_index(int rank) const;  ///< which part of the batch `rank` reads
};

/// Strategies that ask for an axis of one name at different distances divide it (hybrid sharding): the outermost has "data.0".
/// Throws UsageError where sizes and ranks do not fit, two strategies want the same axis at one distance, or one is given more or
/// fewer axes than it works on.
CONSIST_API Layout lay_out(const std::vector<StrategyUse>& strategies, int ranks);

}  // namespace consist
