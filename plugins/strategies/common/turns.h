// Slices of a batch that alternate on the compute queue (two-batch overlap).
#pragma once

#include "consist/program.h"

namespace consist::strategies {

/// Orders a step whose batch was cut (batch_parts.h), all micro-batches of it: where a slice would wait for a message, the next
/// one computes, forward and backward. Messages of a slice start as soon as their inputs exist. The instructions of one slice
/// keep their order, and so do messages between pipeline stages. Nothing is done where no batch was cut.
void take_turns(Program& step);

}  // namespace consist::strategies
