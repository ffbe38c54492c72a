// Overlap in forward: products are cut along tokens, so that one slice's collective runs beside another slice's product.
#pragma once

#include "consist/program.h"

namespace consist::tensor_parallel {

struct OverlapSettings {
  int axis = 0;   ///< of the mesh
  int parts = 1;  ///< 1: nothing is cut; 0: halves of the batch alternate where that is faster (see the README)
};

/// Cuts forward along tokens. Two slices of the batch alternate through all layers: the messages of one are in flight while the
/// other computes. More slices, and those of a single sequence, which attention needs uncut, are cut from a product whose sums
/// are reduce_scattered, through the norm, to the products that read the all_gathered tensor. A rank's tokens between the
/// collectives are then some of every slice, and all collectives of the program are cut alike (see any_tokens_do). Slices lie in
/// the memory of the uncut tensors, so that backward sees those. Throws UsageError if so many slices cannot be made.
void overlap_forward(Program& step, const OverlapSettings& settings);

}  // namespace consist::tensor_parallel
