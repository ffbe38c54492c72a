// A group of one member: nothing to connect, so no settings of the process are fixed for it.
#pragma once

#include <memory>

#include "consist/transport.h"
#include "plugins/transports/nccl/driver.h"

namespace consist::nccl {

/// Collectives are copies on the device, or nothing.
std::unique_ptr<Communicator> make_alone(const Driver& driver);

}  // namespace consist::nccl
