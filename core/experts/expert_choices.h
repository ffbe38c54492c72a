// The number of tokens' choices of each expert: the metric "expert_choices".
#pragma once

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Makes the output "expert_choices" of one micro-batch, of this rank's routers; rows of other ranks' routers are 0. Nothing
/// without routers.
CONSIST_API void count_expert_choices(Program& segment);

}  // namespace consist
