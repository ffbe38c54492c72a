// Is the path that NCCL took the one that was asked for? Pure functions; every member of a group judges the same findings of all
// members, so that all of them come to the same answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/transports/nccl/findings.h"

namespace consist::nccl {

/// The path that a transport promises.
enum class Path : std::uint8_t {
  nvlink,  ///< peer to peer through NVLink, between any two members that talk to each other
  shm,     ///< peer copies over PCIe, or host memory; no NVLink and no network
  socket,  ///< NCCL's own TCP, also within a host
  ib,      ///< NCCL's own InfiniBand and RoCE, at least between hosts
  efa,     ///< the AWS OFI plugin over libfabric's provider efa, at least between hosts
};
std::string_view name_of(Path path) noexcept;  ///< "nvlink", "shm", "socket", "ib", "efa"

/// The way in which members that share a host talk.
enum class WithinHost : std::uint8_t {
  automatic,  ///< nvlink where GPUs have NVLinks or it is not known; else shm. To be resolved before it is promised
  nvlink,     ///< peer to peer through NVLink
  shm,        ///< peer to peer over PCIe where NCCL takes it, else through host memory; never through NVLink
  pcie,       ///< peer to peer over PCIe
  memory,     ///< through host memory
  network,    ///< as members on different hosts do
};
std::string_view text_of(WithinHost within) noexcept;  ///< "NVLink", "peer copies over PCIe or host memory", ...

struct Promise {
  Promise(Path wanted);  // NOLINT(google-explicit-constructor): the path says all, but for ib and efa
  Path path;
  WithinHost within;      ///< by default that of the path: of ib and efa, NVLink
  bool gpudirect = true;  ///< ib, efa: NICs must read and write the GPUs' memory
};

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
