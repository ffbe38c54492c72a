// Finds the fastest of cuBLASLt's algorithms for a product, by timing them on the GPU.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <vector>

#include "plugins/devices/cuda/matmul_description.h"

namespace consist::cuda {

/// The number of the fastest of `proposals`, of which there is at least one; -1 if none of them runs. Takes memory of the GPU
/// for the product's matrices and for `workspace` bytes until it returns. Throws SystemError.
int fastest_of(const std::vector<cublasLtMatmulHeuristicResult_t>& proposals, const MatmulDescription& description,
               cublasLtHandle_t handle, std::int64_t workspace);

}  // namespace consist::cuda
