// The members of a group before they have a communicator: who they are and where, through the job's store.
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

/// Every member gives its text under `topic`, each a topic of its own per group, and gets all of them by member. Throws PeerError
/// naming the member that gave none within the job's timeout.
std::vector<std::string> exchange_texts(Job& job, const GroupRequest& group, const std::string& topic, const std::string& own);
/// Member 0's text, for all.
std::string share_text(Job& job, const GroupRequest& group, const std::string& topic, const std::string& text_of_first);

std::vector<Member> exchange_members(Job& job, const GroupRequest& group, const Member& own);
/// Throws UsageError for members that cannot form a group: two on one GPU, different versions of NCCL.
void check_members(const std::vector<Member>& members, const GroupRequest& group);

}  // namespace consist::nccl
