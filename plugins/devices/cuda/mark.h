// Lets the host see how far a stream has come.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace consist::cuda {

/// Writes `value` to pinned host memory when the stream gets there. Takes no multiprocessor: a kernel would wait until the
/// product that fills the device beside it ends, and what the stream does next (a collective, for which all ranks wait) with it.
/// May be recorded in a graph.
void enqueue_mark(std::int32_t* position, std::int32_t value, cudaStream_t stream);

}  // namespace consist::cuda
