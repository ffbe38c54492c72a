// Placements of tensors under ZeRO.
#pragma once

#include "consist/program.h"
#include "plugins/strategies/zero/settings.h"

namespace consist::zero {

/// Shards batches over `axes` and makes parameters flat along them, except for axes along which another strategy has placed them;
/// gathers, reductions and the placement of gradients and optimizer states follow. Frozen parameters below Settings::persistence
/// have no gradients and states to shard: they are replicated, and no rank sends them.
void partition(Program& forward, AxisSet axes, const Settings& settings);

}  // namespace consist::zero
