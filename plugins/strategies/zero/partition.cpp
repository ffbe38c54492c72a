#include "plugins/strategies/zero/partition.h"

#include "plugins/strategies/zero/elements.h"

namespace consist::zero {

void partition(Program& forward, AxisSet axes, const Settings& settings) {
  for (Tensor& tensor : forward.tensors) {
    if (tensor.role == Role::input && !tensor.state) tensor.placements.set(axes, Placement::shard(0));
  }
  for (const Parameter& parameter : forward.parameters) {
    if (!parameter.trainable && whole_elements(forward, parameter.tensor, axes) < settings.persistence) continue;
    forward[parameter.tensor].placements.set(axes, Placement::flat());
  }
}

}  // namespace consist::zero
