// The host's memory: what it has available, and whether what its ranks will pin together fits.
#pragma once

#include <cstdint>

#include "consist/export.h"
#include "consist/job.h"

namespace consist {

/// Bytes that processes of this host can still take without swapping: MemAvailable, or what the control group leaves if that is
/// less. The largest number if neither can be read.
CONSIST_API std::int64_t available_host_memory();

/// Called by every rank before any of them pins memory; returns when it is known that what the ranks of this host want to pin
/// together (`pinned` is this rank's) fits into `limit` bytes (0: what the host has available). Throws UsageError on the host's
/// first rank where it does not; the other ranks then learn of that rank's failure.
CONSIST_API void check_host_memory(Job& job, std::int64_t pinned, std::int64_t limit);

}  // namespace consist
