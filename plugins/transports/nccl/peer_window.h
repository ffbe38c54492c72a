// A piece of device memory per member that the others of its group, all on one host, write to and read from.
#pragma once

#include <cstddef>
#include <vector>

#include "consist/transport.h"
#include "plugins/transports/nccl/driver.h"

namespace consist::nccl {

class PeerWindow {
 public:
  /// Called by all members at once, each with the CUDA context of its device current. Every member gives as many bytes, which are
  /// zero. Throws SystemError, alike on all members, where a driver lets no other process in; PeerError for a member that does
  /// not come.
  PeerWindow(const Driver& driver, Job& job, const GroupRequest& group, std::size_t bytes);
  /// No member may use the window any more.
  ~PeerWindow();
  PeerWindow(const PeerWindow&) = delete;
  PeerWindow& operator=(const PeerWindow&) = delete;

  /// Where member `member`'s memory begins, as this process sees it.
  CUdeviceptr of(int member) const { return address_[static_cast<std::size_t>(member)]; }

 private:
  std::string offer(std::size_t bytes);  // makes the own memory; what others need to reach it
  void open(int member, const std::string& said);
  void close() noexcept;

  const Driver& driver_;
  const int own_;
  std::vector<CUdeviceptr> address_;  // by member
  std::vector<bool> opened_;          // by member: from another process, to be closed
};

}  // namespace consist::nccl
