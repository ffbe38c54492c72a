// The hosts of a joint report as a table: a row of each.
#pragma once

#include <string>

#include "launch/doctor/joint_report.h"

namespace consist::doctor {

/// Lines: ranks, findings, the clock, and where they were measured the time of a host's slowest device over the median of all and
/// its slowest link to another host.
std::string host_table(const JointReport& joint);

}  // namespace consist::doctor
