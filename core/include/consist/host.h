// The host that this process runs on, as far as it may use it. All functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "consist/export.h"

namespace consist {

/// Cores that the process may be scheduled on, or the cores of its control group's quota of processor time (rounded up) if those
/// are fewer: in a container, std::thread::hardware_concurrency() counts those of the whole host. At least 1.
CONSIST_API int usable_cores();

/// Cores that a quota allows, as control groups write it: "QUOTA PERIOD" in microseconds, QUOTA being "max" or -1 where there
/// is none. 0: no limit, or not such a text.
CONSIST_API int cores_of_quota(std::string_view text);

/// True if a process has the capability IPC_LOCK, which lifts its limit of pinned memory (RLIMIT_MEMLOCK), by the text of its
/// /proc/PID/status. False for another text.
CONSIST_API bool has_ipc_lock(std::string_view status);

/// Bytes that processes of this host can still take without swapping: MemAvailable, or what the control group leaves if that is
/// less. The largest number if neither can be read.
CONSIST_API std::int64_t available_host_memory();

}  // namespace consist
