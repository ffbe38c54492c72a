#include "plugins/strategies/zero/strategy_base.h"

#include "plugins/strategies/zero/gathers.h"
#include "plugins/strategies/zero/offload.h"
#include "plugins/strategies/zero/partition.h"
#include "plugins/strategies/zero/reductions.h"
#include "plugins/strategies/zero/strip.h"
#include "plugins/strategies/zero/wire.h"

namespace consist::zero {

void ZeroStrategy::partition(Program& forward, int axis) const {
  zero::partition(forward, axis);
  place_parameters(forward, axis, settings_);
}

void ZeroStrategy::schedule(Program& step, int axis) const {
  Stripped stripped = strip(step, axis);
  if (!settings_.reduce_each) stripped.gradients = add_up_whole(step, stripped.gradients);
  if (settings_.wire) make_as(step, stripped.gradients, *settings_.wire);
  Inserter inserter(step);
  // Gathers first: where both stand at one place, compute is waiting for the parameters and nobody yet for the gradients.
  insert_gathers(step, inserter, stripped.uses, axis, settings_);
  insert_reductions(step, inserter, stripped.gradients, axis, settings_);
  inserter.apply();
}

void ZeroStrategy::finish(Program& program, int axis) const {
  copy_before_gathers(program, axis, settings_);
  stream_optimizer(program, settings_);
}

}  // namespace consist::zero
