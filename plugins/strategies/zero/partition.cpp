#include "plugins/strategies/zero/partition.h"

namespace consist::zero {

void partition(Program& forward, int axis) {
  for (Tensor& tensor : forward.tensors) {
    if (tensor.role == Role::input && !tensor.state) tensor.placements[axis] = Placement::shard(0);
  }
  for (const Parameter& parameter : forward.parameters) forward[parameter.tensor].placements[axis] = Placement::flat();
}

}  // namespace consist::zero
