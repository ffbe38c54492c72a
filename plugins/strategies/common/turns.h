// Parts of a batch that take turns on the compute queue.
#pragma once

#include "consist/program.h"

namespace consist::strategies {

/// Orders a step whose batch was cut (batch_parts.h), all micro-batches of it: where a part would wait for a message, the next
/// one computes, forward and backward. Messages of a part start as soon as what they send is there. The instructions of one part
/// keep their order, and so do messages between pipeline stages. Nothing is done where no batch was cut.
void take_turns(Program& step);

}  // namespace consist::strategies
