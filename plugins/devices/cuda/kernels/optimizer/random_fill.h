// Data for measurements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "consist/dtype.h"

namespace consist::cuda {

/// Numbers in [-1, 1) of a float dtype, the same for the same seed.
void fill_random(void* memory, std::int64_t elements, DType type, std::uint32_t seed, cudaStream_t stream);

}  // namespace consist::cuda
