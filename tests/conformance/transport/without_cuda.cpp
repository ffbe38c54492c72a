#include "consist/error.h"
#include "tests/conformance/transport/memory.h"

namespace consist::testing {

std::unique_ptr<Memory> make_cuda_memory(int /*device*/) {
  throw UnavailableError("these tests were built without CUDA");
}

int cuda_devices(std::string& reason) {
  reason = "these tests were built without CUDA";
  return 0;
}

}  // namespace consist::testing
