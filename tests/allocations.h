// Counts memory allocations, to show that there are none where there must be none.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace consist::test {

/// Calls of malloc and its kin so far, operator new and C libraries included, by all threads of this program. Programs that use
/// this compile tests/allocations.cpp in.
std::int64_t allocations();

/// The same without what these threads (by gettid) have done.
std::int64_t allocations_except(const std::vector<pid_t>& threads);

/// From now on, what a loaded library whose file's name starts with `name` allocates itself is counted apart, as tolerated.
/// Returns its path: empty if no such library is loaded, or if callers cannot be told (under a sanitizer).
std::string tolerate_allocations_of(const char* name);
struct Tolerated {
  std::int64_t count = 0;
  std::int64_t largest_bytes = 0;  ///< since forget_largest()
};
Tolerated tolerated_allocations();
void forget_largest_tolerated();

}  // namespace consist::test
