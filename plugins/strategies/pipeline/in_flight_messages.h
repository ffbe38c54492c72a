// Keeps memory that a message in flight still reads.
#pragma once

#include "consist/program.h"

namespace consist::pipeline {

/// Keeps the memory of the inputs of sends for twice the time that a message takes by estimate, while other work is computed. If
/// it were free right after the send, it would be planned for the first instructions of the next part, which would then wait for
/// the message to leave: a large one in forward parts whose cut lies within a layer.
void keep_in_flight_messages(Program& step);

}  // namespace consist::pipeline
