// The linears behind an activation, for strategies that shard or repeat its channels.
#pragma once

#include <vector>

#include "consist/analysis.h"
#include "consist/program.h"

namespace consist::strategies {

/// The instructions of the linears that made `activation`: one, or those whose outputs were added up (an adapter's beside the
/// model's); with ops in between that are sharded as it is (Op::channel_split: rope, and concat, which joins parts of heads that
/// several linears made). None if something else made it, or a part of it. `def_use` is that of `program`.
std::vector<InstructionId> linears_behind(const Program& program, const DefUse& def_use, TensorId activation);

}  // namespace consist::strategies
