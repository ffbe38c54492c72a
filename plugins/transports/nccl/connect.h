// NCCL for transport plugins: whether it can work here, and communicators whose path is proven. Needs neither NCCL nor CUDA to be
// compiled or loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "consist/export.h"
#include "consist/transport.h"
#include "plugins/transports/nccl/path_verification.h"

namespace consist::nccl {

/// Transfers of some size that copy engines make instead of NCCL's kernels: none; messages over links (GroupRequest::link); also
/// all_gather and reduce_scatter; or messages and large collectives where ranks reach each other's memory, and none where they do
/// not, which the path then says.
enum class CopyEngines : std::uint8_t { none, messages, all, automatic };

struct ConnectOptions {
  Path path = Path::nvlink;
  std::string transport;  ///< plugin's name, for messages
  std::string library;    ///< file or folder of libnccl.so.2; empty: see load_library
  /// For members that share a host. `automatic` and `shm` are resolved by NVML's answers of all members: `shm` becomes `memory`
  /// where a GPU has NVLinks or that is not known, since NCCL takes them wherever peer copies are allowed.
  WithinHost within = WithinHost::nvlink;
  /// Path::nvlink only: transfers by copy engines, through `staging` bytes of device memory per member and group.
  CopyEngines copy_engines = CopyEngines::none;
  std::int64_t staging = std::int64_t{32} << 20;
  std::string interface;       ///< of Path::socket: name of a network interface; empty: NCCL's choice
  bool gpudirect = true;       ///< Path::ib, efa: an error where NICs do not reach the GPUs' memory
  std::string network;         ///< Path::efa: NCCL's name for the network of the AWS OFI plugin
  std::string network_plugin;  ///< Path::efa: file of that plugin
  std::string hcas;            ///< Path::ib: devices to use ("mlx5_0,mlx5_1:1"); empty: NCCL's choice, or NCCL_IB_HCA
  bool gpudirect_off = false;  ///< Path::ib: NICs must not reach the GPUs' memory
};

/// Why NCCL cannot work in this build or on this machine; empty if it can.
CONSIST_API std::string unavailable(const std::string& library);

/// Why the GPU of the current CUDA context reaches none of the others of this process by NVLink, as far as NVML says; empty: it
/// does, it is the only one and has links that are up, or that is not known.
CONSIST_API std::string missing_nvlink();

/// Called by all members of the group, with the CUDA context of their device current. Fixes NCCL's choice of path, makes the
/// communicator, runs every collective once and compares what NCCL then says about its connections, and NVML about the links,
/// with what was asked for. Throws UnavailableError for a path that was not taken, alike on all members: "transport nvlink: asked
/// for nvlink, got SHM/direct/direct between ranks 0 and 1"; UsageError where settings collide; PeerError for a member that does
/// not come.
CONSIST_API std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group, const ConnectOptions& options);

}  // namespace consist::nccl
