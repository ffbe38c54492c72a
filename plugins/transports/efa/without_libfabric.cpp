// Stands in for connect.cpp where the build found no headers of libfabric.
#include "consist/error.h"
#include "plugins/transports/efa/connect.h"

namespace consist::efa {

std::string provider_problem(const HostOptions& /*options*/, bool device_memory) {
  // On GPUs the plugin of NCCL brings its own libfabric, and NCCL's log tells whether it used GPUDirect.
  if (device_memory) return {};
  return "this build has no libfabric: rdma/fabric.h was not found when it was configured (Debian: libfabric-dev)";
}

std::unique_ptr<PointToPoint> connect_members(Job& /*job*/, const GroupRequest& /*group*/, const HostOptions& options) {
  throw UnavailableError("transport efa: " + provider_problem(options, false));
}

}  // namespace consist::efa
