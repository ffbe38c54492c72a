// Kernels of the collectives: they hand an instruction's buffers to a communicator.
#pragma once

#include <memory>

#include "consist/kernel.h"
#include "consist/transport.h"

namespace consist::ops {

/// See Op::make_collective_kernel. Those that move slices throw ProgramError for a layout whose slices are scattered over very
/// many places.
std::unique_ptr<Kernel> make_all_reduce_kernel(Communicator* communicator);
std::unique_ptr<Kernel> make_reduce_scatter_kernel(const KernelRequest& request, Communicator* communicator, int ranks);
std::unique_ptr<Kernel> make_all_gather_kernel(const KernelRequest& request, Communicator* communicator, int ranks);
std::unique_ptr<Kernel> make_all_to_all_kernel(const KernelRequest& request, Communicator* communicator, int ranks);
/// Sends to the next member and receives from the one before.
std::unique_ptr<Kernel> make_shift_kernel(Communicator* communicator, int ranks);
/// A message over the link of a lane, whose two members are the sender and the receiver.
std::unique_ptr<Kernel> make_send_kernel(Communicator* communicator);
std::unique_ptr<Kernel> make_receive_kernel(Communicator* communicator);

}  // namespace consist::ops
