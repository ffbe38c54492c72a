// Kernels that add or rearrange equal parts when copies have brought them together.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "consist/dtype.h"

namespace consist::nccl {

struct HeldParts {
  static constexpr int most = 16;
  int count = 0;
  const void* part[most];  ///< on this device
};

/// out = the sum of the parts, of `elements` elements each, in their order, in f32, rounded once. `out` may be one of them. f32
/// and bf16. Throws SystemError.
void sum_parts(const HeldParts& parts, void* out, std::int64_t elements, DType dtype, CUstream stream);

/// Puts the i-th part, of `bytes` bytes, `distance` bytes times i behind `out`; a part that lies there already stays. Throws
/// SystemError.
void place_parts(const HeldParts& parts, void* out, std::size_t distance, std::size_t bytes, CUstream stream);

/// Loads the kernels into the current context. Throws SystemError.
void load_part_kernels();

}  // namespace consist::nccl
