// Packing: linears that read one x become a single product, and so do their gradients.
#pragma once

#include "consist/program.h"

namespace consist {

/// q, k and v (gate and up) of one x: one product forward, one for the gradient of x instead of a chain of sums into it, one for
/// the gradients of the weights. Matrices that are multiplied at once must be one matrix, so memory is arranged: weights (and
/// their gradients) lie one behind the other, results (and their gradients) are views of one tensor. Each of these is done where
/// - no strategy has put the weights or gradients elsewhere, in another order or in a slice only;
/// - every instruction that reads or writes the views takes them (Op::takes_strided_view, makes_strided_view);
/// - sizes are such that alignment leaves no gaps (weights: tensor_alignment, views: column_alignment);
/// - no instruction in between depends on one of them, and no collective stands between gradients of weights: a strategy may have
///   put it there to overlap with them.
/// The rest stays as it was. Rotary embeddings between a product and attention then work in place where they can, so that views
/// without further readers are not kept for those beside them. Runs after the strategies' schedule, before the optimizer is
/// appended.
CONSIST_API void pack_linears(Program& program);

/// Bytes that the start of every column range must divide by: one access of a GPU's thread.
inline constexpr std::int64_t column_alignment = 16;

}  // namespace consist
