// NCCL reads most of its settings from the environment, once per process. This is where the groups of a process agree on them
// before NCCL's first call.
#pragma once

#include <string>

#include "plugins/transports/nccl/path_verification.h"

namespace consist::nccl {

/// The settings that one group needs.
struct Need {
  Path path = Path::nvlink;
  std::string transport;     ///< plugin's name, for messages
  std::string group;         ///< "data.0"
  bool share_a_host = true;  ///< some two members run on one host, where NCCL would not use the network unless it is told to
  /// For members that share a host. Where none do: what the GPUs of this host have, for groups that come later.
  WithinHost within = WithinHost::nvlink;
  std::string interface;       ///< of the socket transport; empty: NCCL's choice
  std::string network;         ///< Path::ib, efa: as NCCL calls it
  std::string network_plugin;  ///< Path::efa: file
  std::string hcas;            ///< Path::ib: NCCL_IB_HCA without the "="; empty: as the environment says
  bool gpudirect_off = false;  ///< Path::ib: NICs must not reach the GPUs' memory
};

/// Sets the NCCL_* variables that `need` asks for, unless an earlier group of this process has set them to the same. Thread-safe;
/// call it before the group's first call of NCCL. Throws UsageError when the environment or an earlier group says something else,
/// naming both.
void fix_process_settings(const Need& need);

/// True if all groups of this process so far have asked for this path. Thread-safe.
bool only_path_of_process(Path path);

}  // namespace consist::nccl
