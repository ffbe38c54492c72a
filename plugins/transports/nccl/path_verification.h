// Is the path that NCCL took the one that was asked for? Pure functions; every member of a group judges the same findings of all
// members, so that all of them come to the same answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plugins/transports/nccl/log.h"

namespace consist::nccl {

/// The path that a transport promises.
enum class Path {
  nvlink,  ///< peer to peer through NVLink, between any two members that talk to each other
  socket,  ///< NCCL's own TCP, also within a host
  efa,     ///< the AWS OFI plugin over libfabric's provider efa, at least between hosts
};
std::string_view name_of(Path path) noexcept;  ///< "nvlink", "socket", "efa"

struct Promise {
  Promise(Path wanted) : path(wanted) {}  // NOLINT(google-explicit-constructor): the path says all, but for efa
  Path path;
  bool gpudirect = true;           ///< efa: NICs read and write the GPUs' memory
  bool nvlink_within_host = true;  ///< efa: members of one host talk through NVLink instead
};

inline constexpr int unknown_links = -1;

/// The findings of one member.
struct MemberFindings {
  std::vector<Connection> connections;  ///< numbered by member
  std::vector<std::string> interfaces;  ///< of NET/Socket
  std::vector<std::string> providers;   ///< of libfabric
  std::string plugin;                   ///< the AWS OFI plugin, with its version
  std::vector<std::string> multicast;
  int active_links = unknown_links;  ///< NVLinks of its GPU that are up, by NVML
  std::vector<int> not_linked;       ///< members on its host to which NVML knows no path through NVLink
};
/// To and from the text that travels through the job. decode throws DataError.
std::string encode(const MemberFindings& findings);
MemberFindings decode(std::string_view text);

struct Verdict {
  std::string path;     ///< "P2P/CUMEM over 18 NVLinks"; if there is no problem
  std::string problem;  ///< "asked for nvlink, got SHM/direct/direct between ranks 0 and 1"; empty if the promise is kept
};

/// `ranks[i]` is the job's rank of member i, for the messages. A member that names no connection at all is a problem, too: then
/// nothing was proven.
Verdict verify_path(const Promise& promise, const std::vector<MemberFindings>& members, const std::vector<int>& ranks);

/// True if one connection keeps the promise, as far as NCCL's log tells.
bool keeps_promise(const Promise& promise, const Connection& connection);

}  // namespace consist::nccl
