// Which of cuBLASLt's algorithms is fastest for a product, by timing them on the GPU.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <optional>
#include <span>

#include "plugins/devices/cuda/matmul_description.h"

namespace consist::cuda {

/// The fastest of `proposals`, nothing if none of them runs. With `seconds` > 0 also their variants, and those that come near run
/// for so long each, at the clocks that the GPU's power allows them. Takes memory of the GPU for the product's matrices and for
/// `workspace` bytes until it returns. Throws SystemError.
std::optional<cublasLtMatmulAlgo_t> fastest_of(std::span<const cublasLtMatmulHeuristicResult_t> proposals,
                                               const MatmulDescription& description, cublasLtHandle_t handle,
                                               std::int64_t workspace, double seconds);

}  // namespace consist::cuda
