// Descriptions of tensors for Hopper's copy engine.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "consist/kernel.h"

namespace consist::cuda {

/// Describes a dense tensor of f32, bf16 or 8-bit floats that starts at 16 bytes, as three dimensions of which the first is the
/// innermost; rows are a multiple of 16 bytes. It is moved in boxes of these sizes, whose rows are 128 bytes, swizzled in shared
/// memory; what lies outside reads as 0. Throws SystemError.
CUtensorMap tensor_map(const Buffer& tensor, std::array<std::int64_t, 3> sizes, std::array<int, 3> box);

}  // namespace consist::cuda
