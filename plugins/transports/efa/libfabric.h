// libfabric.so.1, loaded at run time, so that the transport loads, and says what is missing, on machines that have none.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>

namespace consist::efa {

/// The functions that are called by name; everything else goes through the objects that they make.
struct Libfabric {
  std::string path;  ///< of the file, as the loader resolved it
  decltype(&::fi_getinfo) getinfo;
  decltype(&::fi_freeinfo) freeinfo;
  decltype(&::fi_dupinfo) dupinfo;
  decltype(&::fi_fabric) fabric;
  decltype(&::fi_strerror) strerror;
  decltype(&::fi_version) version;

  std::string version_text() const;          ///< "1.17"
  std::string error_text(long error) const;  ///< of a negative result
};

/// The process's one libfabric. `wanted` is a file or a folder to take it from; empty: where Amazon's EFA installer puts
/// it, then the loader's path. Thread-safe. Throws UnavailableError naming what was tried, UsageError when `wanted` differs from
/// what is loaded already.
const Libfabric& load_libfabric(const std::string& wanted);

struct FreeInfo {
  void operator()(fi_info* info) const { library->freeinfo(info); }
  const Libfabric* library;
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

/// The endpoints for tagged messages (reliable, unconnected) that `provider` ("efa", "tcp") offers, best first; null if it offers
/// none, and then `reason` says why. `device_memory`: those that also take memory of GPUs (GPUDirect). Throws UsageError where
/// the environment asks for another path (FI_EFA_ENABLE_SHM_TRANSFER).
Info find_endpoints(const Libfabric& library, const std::string& provider, bool device_memory, std::string& reason);

}  // namespace consist::efa
