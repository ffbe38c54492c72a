// The arithmetic of collectives on host memory.
#pragma once

#include <cstddef>

#include "consist/dtype.h"

namespace consist {

/// to[i] = a[i] + b[i] for `count` elements of f32 or bf16. bf16 is added in f32 and rounded to nearest even; the result does not
/// depend on the processor. `to` may be `a` or `b`; otherwise the ranges do not overlap. Throws UsageError for another dtype.
void sum(void* to, const void* a, const void* b, std::size_t count, DType dtype);

}  // namespace consist
