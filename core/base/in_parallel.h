// The same work for many numbers, on several threads.
#pragma once

#include <cstddef>
#include <functional>

#include "consist/export.h"

namespace consist {

/// Calls `work` with 0 to `count` - 1, each once, on as many threads, this one among them. Returns when all are done; throws what
/// one of the calls has thrown, whose thread makes no further ones.
CONSIST_API void in_parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace consist
