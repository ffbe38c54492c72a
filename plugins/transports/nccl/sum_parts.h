// Sums of equal parts, behind copies that have brought them together.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "consist/dtype.h"

namespace consist::nccl {

struct SummedParts {
  static constexpr int most = 16;
  int count = 0;
  const void* part[most];  ///< of `elements` elements each, on this device
};

/// out = the sum of the parts in their order, in f32, rounded once. `out` may be one of them. f32 and bf16. Throws SystemError.
void sum_parts(const SummedParts& parts, void* out, std::int64_t elements, DType dtype, CUstream stream);

/// Loads the kernels into the current context. Throws SystemError.
void load_sums();

}  // namespace consist::nccl
