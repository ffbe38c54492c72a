// The block "scheduler" of a DeepSpeed JSON: WarmupLR, WarmupDecayLR and WarmupCosineLR.
#pragma once

#include "launch/import/common/target.h"

namespace consist::deepspeed {

using namespace readers;

/// `block` has the keys "type" and those of "params"; the optimizer's learning rate has been read. Throws UsageError for a
/// scheduler that is not done here, and for parameters that it does not have.
void read_scheduler(const Json& block, Target& target);

}  // namespace consist::deepspeed
