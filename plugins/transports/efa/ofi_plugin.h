// The AWS OFI plugin, through which NCCL uses libfabric: where it is, and by which name NCCL knows its network.
#pragma once

#include <string>

namespace consist::efa {

struct OfiPlugin {
  std::string path;     ///< of the file
  std::string network;  ///< what NCCL calls it: "Libfabric", before version 1.12 "AWS Libfabric"
};

/// `wanted` is a file or a folder to take it from; empty: NCCL_NET_PLUGIN, the loader's path, where Amazon's installer puts it.
/// Loads the library, which stays loaded. Throws UnavailableError naming what was tried.
OfiPlugin find_ofi_plugin(const std::string& wanted);

}  // namespace consist::efa
