// Lets the host see how far a stream has come.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace consist::cuda {

/// Writes `value` to pinned host memory when the stream gets there.
void enqueue_mark(std::int32_t* position, std::int32_t value, cudaStream_t stream);

}  // namespace consist::cuda
