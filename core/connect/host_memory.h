// Checks that the memory that the ranks of a host will pin together fits into the host's.
#pragma once

#include <cstdint>

#include "consist/export.h"
#include "consist/job.h"

namespace consist {

/// Called by every rank before any of them pins memory; returns when it is known that what the ranks of this host want to pin
/// together (`pinned` is this rank's) fits into `limit` bytes (0: what the host has available). Throws UsageError on the host's
/// first rank where it does not; the other ranks then learn of that rank's failure.
CONSIST_API void check_host_memory(Job& job, std::int64_t pinned, std::int64_t limit);

}  // namespace consist
