// The limits of the control groups that this process is in.
#pragma once

#include <cstdint>
#include <optional>

#include "launch/doctor/machine.h"

namespace consist::doctor {

struct GroupLimits {
  std::optional<std::int64_t> memory;  ///< the least of all groups above, too; nothing: none limits it
  std::int64_t memory_left = 0;        ///< of that group
  int cores = 0;                       ///< of the least quota, rounded up; 0: no quota
};

GroupLimits read_group_limits(const Machine& machine);

}  // namespace consist::doctor
