// Frozen weights of linears in few bits (--frozen-weights): they lie in memory as blocks of codes and are decoded where a product
// reads them (Dettmers et al., 2023, "QLoRA").
#pragma once

#include "consist/export.h"
#include "consist/program.h"
#include "consist/weight_blocks.h"

namespace consist {

/// Lets the frozen parameters that products of linears alone read lie in blocks: decode_weights stands before the first product
/// of each layer that reads one. `forward` has placements; other parameters stay as they are. Throws UsageError where there is no
/// such parameter, and for one whose rows, or a rank's slices of them, are no whole blocks.
CONSIST_API void keep_in_blocks(Program& forward, const WeightBlocks& blocks);

/// Throws UsageError where an instruction keeps decoded weights in 8 bits of its own, as a precision may want it.
CONSIST_API void refuse_copies_of_decoded(const Program& forward);

}  // namespace consist
