#include "plugins/strategies/zero/partition.h"

#include "consist/analysis.h"
#include "plugins/strategies/zero/elements.h"

namespace consist::zero {

void partition(Program& forward, AxisSet axes, const Settings& settings) {
  for (Tensor& tensor : forward.tensors) {
    if (tensor.role == Role::input && !tensor.state)
      tensor.placements.set(axes_with(tensor, Placement::replicate(), axes), Placement::shard(0));
  }
  for (const Parameter& parameter : forward.parameters) {
    if (!parameter.trainable && whole_elements(forward, parameter.tensor) < settings.persistence) continue;
    Tensor& tensor = forward[parameter.tensor];
    tensor.placements.set(axes_with(tensor, Placement::replicate(), axes), Placement::flat());
  }
}

}  // namespace consist::zero
