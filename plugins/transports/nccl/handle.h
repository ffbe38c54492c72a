// One ncclComm_t: made without ever waiting longer than the job's timeout, aborted or destroyed once.
#pragma once

#include <chrono>
#include <string>

#include "consist/transport.h"
#include "plugins/transports/nccl/library.h"

namespace consist::nccl {

class Handle {
 public:
  /// Joins the group under `id`, which all members share; called by all of them, with their CUDA context current. Throws
  /// PeerError naming the rank that did not come in time, SystemError for what NCCL says. `network` is NCCL's name for the one to
  /// use between hosts ("Socket", "Libfabric"); it takes no other.
  Handle(Job& job, const GroupRequest& group, const Library& library, const ncclUniqueId& id, const std::string& network);
  /// Destroys what has not been aborted. Waits for work of the device.
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  ncclComm_t get() const noexcept { return comm_; }
  /// Ends running and waiting work on the device, and forgets the communicator. Not to be called twice at once.
  void abort() noexcept;

 private:
  void wait_for(ncclComm_t comm, const char* what);

  Job& job_;
  const GroupRequest& group_;
  const Library& library_;
  const std::chrono::steady_clock::time_point deadline_;
  ncclComm_t comm_ = nullptr;
};

/// "ncclAllReduce failed: unhandled system error", with NCCL's last words.
std::string error_text(const Library& library, const char* what, ncclResult_t result, ncclComm_t comm);
/// The member to suspect first when a group hangs: the next one. The job finds out which rank it really was.
int suspect(const GroupRequest& group);

}  // namespace consist::nccl
