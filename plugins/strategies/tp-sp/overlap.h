// Overlap in forward: products are cut along tokens, so that one part's collective runs beside another part's product.
#pragma once

#include "consist/program.h"

namespace consist::tensor_parallel {

struct OverlapSettings {
  int axis = 0;   ///< of the mesh
  int parts = 1;  ///< 1: nothing is cut; 0: halves of the batch take turns where that pays (see the README)
};

/// Cuts forward along tokens. Two parts of the batch go through all layers in turns: what one sends travels while the other
/// computes. More parts, and stretches of a single sequence, which attention needs whole, are cut from a product whose sums are
/// reduce_scattered, through the norm, to the products that read what is all_gathered again. A rank's tokens between the
/// collectives are then a piece of every part, and all collectives of the program are cut alike (see any_tokens_do). Parts
/// lie in the whole tensors' places, so that backward sees those. Throws UsageError where so many parts cannot be made.
void overlap_forward(Program& step, const OverlapSettings& settings);

}  // namespace consist::tensor_parallel
