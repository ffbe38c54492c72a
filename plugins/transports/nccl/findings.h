// The findings of one member about the path of its group, and the text in which the job carries them to the others.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plugins/transports/nccl/log.h"

namespace consist::nccl {

inline constexpr int unknown_links = -1;

struct MemberFindings {
  std::vector<Connection> connections;  ///< numbered by member
  std::vector<std::string> interfaces;  ///< of NET/Socket
  std::vector<std::string> hcas;        ///< of NET/IB
  std::vector<std::string> providers;   ///< of libfabric
  std::string plugin;                   ///< the AWS OFI plugin, with its version
  std::vector<std::string> multicast;
  int active_links = unknown_links;  ///< NVLinks of its GPU that are up, by NVML
  std::vector<int> not_linked;       ///< members on its host to which NVML knows no path through NVLink
};

/// decode throws DataError.
std::string encode(const MemberFindings& findings);
MemberFindings decode(std::string_view text);

}  // namespace consist::nccl
