// Counts memory allocations, to show that there are none where there must be none.
#pragma once

#include <cstdint>

namespace consist::test {

/// Calls of the global operator new so far, by all threads, in this program and in the libraries that it loads.
std::int64_t allocations();

}  // namespace consist::test
