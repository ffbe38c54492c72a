// Host memory that a GPU reads and writes at the full speed of its bus.
#pragma once

#include <cstddef>

namespace consist::cuda {

/// Zeroed memory whose pages stay where they are. cudaHostAlloc() takes its pages in one thread, 4 KiB at a time: 26 GiB for each
/// of four ranks, as offloading a model of 8 billion parameters takes, kept a run waiting for half a minute. Here `threads` >= 1
/// threads take them, in huge pages where the system has some, before the driver pins them. Throws SystemError.
void* allocate_pinned(std::size_t bytes, int threads);

/// Releases memory of allocate_pinned() with the same `bytes`.
void release_pinned(void* memory, std::size_t bytes) noexcept;

}  // namespace consist::cuda
