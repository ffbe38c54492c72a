// Does a communicator do what it says? Tried once, with values that are known.
#pragma once

#include <string>

#include "consist/device.h"
#include "consist/transport.h"

namespace consist {

/// Called by all members of a group right after they connected. Runs the collectives that programs use, on memory of the device
/// and on `queue`: all_reduce (f32 and bf16), reduce_scatter and all_gather, or over a link one message from its first member to
/// its second. Throws UnavailableError, beginning with `who` ("transport 'socket' in group 'data.0'"), where a result is wrong or
/// the communicator names no path; and what the device and the transport throw. A group of one member is not asked.
CONSIST_API void prove_communicator(Communicator& communicator, bool link, Device& device, Queue queue, const std::string& who);

}  // namespace consist
