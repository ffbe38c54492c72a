// Lets one instruction also do what another one would do with its output.
#pragma once

#include "consist/program.h"

namespace consist {

/// Each amax of a tensor whose maker is an op that can state it (Op::with_amax()) becomes an
/// output of that instruction. After the schedule, so that no strategy has to know these ops. Linear.
CONSIST_API void fuse_amax(Program& program);

/// A product that is only made to be added to a sum is added by its own instruction (an input of "linear"), as that of an adapter
/// is: what the product would take to be written and read again is saved. The sum must be updated in place, of the product's
/// dtype, and no instruction between the two may write what the product reads. After the schedule, on the compute queue. Linear.
CONSIST_API void fuse_sums(Program& program);

}  // namespace consist
