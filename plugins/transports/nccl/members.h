// The members of a group before they have a communicator: who they are and where, as they tell each other through the job.
#pragma once

#include <string>
#include <vector>

#include "consist/transport.h"

namespace consist::nccl {

struct Member {
  std::string host;     ///< equal for members between which NCCL would try memory and peer-to-peer
  std::string gpu;      ///< PCI bus id
  std::string library;  ///< NCCL's version
};

/// This process's host as NCCL tells hosts apart: name and boot of the machine.
std::string host_identity();

std::vector<Member> exchange_members(Job& job, const GroupRequest& group, const Member& own);
/// Throws UsageError for members that cannot form a group: two on one GPU, different versions of NCCL.
void check_members(const std::vector<Member>& members, const GroupRequest& group);

}  // namespace consist::nccl
