// Kernels of the collectives: they hand an instruction's buffers to a communicator.
#pragma once

#include <memory>

#include "consist/kernel.h"
#include "consist/program.h"
#include "consist/transport.h"

namespace consist {

/// The kernel for a collective instruction. `communicator` is that of the instruction's axis, which has `ranks` members (null:
/// can be planned, not run). Throws ProgramError for a layout whose parts are scattered over very many places.
std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& request, Communicator* communicator, int ranks);

}  // namespace consist
