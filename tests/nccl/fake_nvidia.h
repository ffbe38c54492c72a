// Switches of the stand-in for NVIDIA's driver and NCCL. Set them before the ranks of a test start.
#pragma once

#include <atomic>
#include <string>

namespace consist::fake {

struct Switches {
  std::string path = "P2P/CUMEM";       ///< what the log says about the connections of collectives
  bool silent = false;                  ///< the log names no connection
  std::string send_path = "P2P/CUMEM";  ///< of send and receive
  bool abort_never_returns = false;     ///< as where the driver is kept by a launch that waits
  bool member_1_never_joins = false;    ///< ncclCommInitRankConfig of member 1 is never finished by the others
};
Switches& switches();
/// While true, a look at the state of a communicator that has worked finds ncclRemoteError. May be set at any time.
std::atomic<bool>& remote_error();

std::string last_network();  ///< that a communicator was asked to use, by its configuration
int aborts();                ///< calls of ncclCommAbort so far
int destructions();          ///< calls of ncclCommDestroy
/// Writes a line as NCCL would, from device `device`.
void write_log(int device, const std::string& message);

}  // namespace consist::fake
