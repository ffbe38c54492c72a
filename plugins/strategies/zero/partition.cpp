#include "plugins/strategies/zero/partition.h"

#include "plugins/strategies/zero/elements.h"

namespace consist::zero {

void partition(Program& forward, int axis, const Settings& settings) {
  for (Tensor& tensor : forward.tensors) {
    if (tensor.role == Role::input && !tensor.state) tensor.placements[axis] = Placement::shard(0);
  }
  for (const Parameter& parameter : forward.parameters) {
    if (!parameter.trainable && whole_elements(forward, parameter.tensor, axis) < settings.persistence) continue;
    forward[parameter.tensor].placements[axis] = Placement::flat();
  }
}

}  // namespace consist::zero
