// Memory that a message in flight still reads, which parts beside it must not be given.
#pragma once

#include "consist/program.h"

namespace consist::pipeline {

/// Keeps the memory of what sends read for twice the time that a message takes by estimate, while other work is computed. Free
/// behind the send, as the program has it, it would be planned for what the next part computes first, which would then wait for
/// the message to leave, in forward parts whose cut lies within a layer a large one.
void keep_in_flight_messages(Program& step);

}  // namespace consist::pipeline
