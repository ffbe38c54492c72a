// Counts memory allocations, to show that there are none where there must be none.
#pragma once

#include <cstdint>

namespace consist::testing {

/// Calls of the global operator new by the calling thread so far, in this program and in the libraries that it loads.
std::int64_t allocations();

}  // namespace consist::testing
