// A model with fewer layers, for estimates: keeps some of those that are equal.
#pragma once

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Layers of a model and those that are left.
struct KeptLayers {
  int all = 0, kept = 0;
};

/// Removes layers of a forward program that was just built (no placements yet), of the longest run in which layer l is like layer
/// l + p, for the smallest p: whole periods of p layers, so that at most `periods` stay, and the rest of the run beyond full
/// periods. Readers of a removed layer's tensors read those of the layer that stayed in its place; its parameters go. Layers that
/// stay are numbered anew. Where no two layers are alike nothing is removed. Linear in the program but for p <= 8.
CONSIST_API KeptLayers keep_layers(Program& forward, int periods);

}  // namespace consist
