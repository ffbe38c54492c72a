// Where tensors live under ZeRO.
#pragma once

#include "consist/program.h"
#include "plugins/strategies/zero/settings.h"

namespace consist::zero {

/// Batches are split over `axes` and parameters lie flat along them, but for axes along which another strategy has placed them;
/// gathers, reductions and the placement of gradients and optimizer states follow. Frozen parameters that would be kept whole
/// (Settings::persistence) have nothing that could be divided: they are whole on every rank, and nobody sends them.
void partition(Program& forward, AxisSet axes, const Settings& settings);

}  // namespace consist::zero
