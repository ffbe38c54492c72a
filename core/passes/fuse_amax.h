// Lets the instruction that makes a tensor also state its largest magnitude.
#pragma once

#include "consist/program.h"

namespace consist {

/// Each amax of a tensor whose maker is an op that can state it (Op::with_amax()) becomes an
/// output of that instruction. After the schedule, so that no strategy has to know these ops. Linear.
CONSIST_API void fuse_amax(Program& program);

}  // namespace consist
