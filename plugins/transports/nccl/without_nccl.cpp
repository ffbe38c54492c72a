// Stands in for connect.cpp where the build found no headers of NCCL or CUDA.
#include "consist/error.h"
#include "plugins/transports/nccl/connect.h"

namespace consist::nccl {

std::string unavailable(const std::string& /*library*/) {
  return "this build has no NCCL: nccl.h and cuda.h were not found when it was configured (give -DNCCL_ROOT=FOLDER, "
         "-DCUDAToolkit_ROOT=FOLDER)";
}

std::string missing_nvlink() {
  return {};
}

std::unique_ptr<Communicator> connect(Job& /*job*/, const GroupRequest& /*group*/, const ConnectOptions& options) {
  throw UnavailableError("transport " + options.transport + ": " + unavailable(options.library));
}

}  // namespace consist::nccl
