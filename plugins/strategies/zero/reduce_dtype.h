// The dtype in which gradients are sent between ranks and summed.
#pragma once

#include <span>

#include "consist/edit.h"
#include "plugins/strategies/zero/strip.h"

namespace consist::zero {

/// Lets the instructions that make the gradients round them to `reduce_dtype` at once, where all that write one can and no
/// instruction adds other micro-batches to it; the others are left for cast_to().
void make_as(Program& step, std::span<const PartialGradient> gradients, DType reduce_dtype);

/// Inserts casts to `reduce_dtype` behind the gradients that are still of another dtype; `whole` is then the cast's output.
void cast_to(Program& step, Inserter& inserter, std::span<PartialGradient> gradients, DType reduce_dtype, const char* strategy);

}  // namespace consist::zero
