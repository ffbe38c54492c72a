// The processors that this process may use.
#pragma once

#include <string_view>

#include "consist/export.h"

namespace consist {

/// Cores that the process may be scheduled on, or as many as its control group's quota of processor time is worth if that is
/// less (rounded up): in a container, std::thread::hardware_concurrency() counts those of the whole host. At least 1.
CONSIST_API int usable_cores();

/// Cores that a quota is worth, as control groups write it: "QUOTA PERIOD" in microseconds, QUOTA being "max" or -1 where there
/// is none. 0: no limit, or not such a text.
CONSIST_API int cores_of_quota(std::string_view text);

}  // namespace consist
