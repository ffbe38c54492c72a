#include <cuda_runtime.h>

#include "consist/error.h"
#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/common/compiled_code.h"

namespace consist::cuda {
namespace {

__global__ void any_kernel() {}

std::string capability_of(const KernelSettings& s) {
  return std::to_string(s.compute_capability / 10) + "." + std::to_string(s.compute_capability % 10);
}

std::string rebuild_for(const std::string& architecture) {
  return "this build was compiled for architecture " + std::string(compiled_architectures()) +
         "; rebuild with -DCMAKE_CUDA_ARCHITECTURES=" + architecture;
}

}  // namespace

const char* compiled_architectures() {
  return CONSIST_CUDA_ARCHITECTURES;
}

void require_code(const std::string& name, const KernelSettings& settings) {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, any_kernel);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    cudaGetLastError();
    throw UnavailableError("device 'cuda' has no code for " + name + " (compute capability " + capability_of(settings) +
                           "): " + rebuild_for(std::to_string(settings.compute_capability)));
  }
  check(status, "ask for the code of a kernel");
}

void require_body(bool there, const char* architecture, const std::string& kernel, const std::string& instead,
                  const KernelSettings& settings) {
  if (there) return;
  throw UnavailableError(kernel + " for this GPU (compute capability " + capability_of(settings) +
                         ") needs code of architecture " + architecture + ": " + rebuild_for(architecture) + ", or " + instead);
}

}  // namespace consist::cuda
