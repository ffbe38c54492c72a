#include "plugins/devices/cuda/mark.h"

#include <cuda.h>

#include <string>

#include "consist/error.h"
#include "plugins/devices/cuda/check.h"

namespace consist::cuda {
namespace {

/// The driver's function, through the runtime: this plugin does not link the driver.
auto find_batch_memory_operations() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  constexpr unsigned since = 12000;  // in this form
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &function, since, cudaEnableDefault, &found),
        "cuStreamBatchMemOp");
#else
  static_assert(CUDART_VERSION >= since);
  check(cudaGetDriverEntryPoint("cuStreamBatchMemOp", &function, cudaEnableDefault, &found), "cuStreamBatchMemOp");
#endif
  if (function == nullptr || found != cudaDriverEntryPointSuccess) {
    throw UnavailableError("the NVIDIA driver has no function cuStreamBatchMemOp: it is too old for this build");
  }
  return reinterpret_cast<decltype(&::cuStreamBatchMemOp)>(function);
}

}  // namespace

void enqueue_mark(std::int32_t* position, std::int32_t value, cudaStream_t stream) {
  static const auto batch_memory_operations = find_batch_memory_operations();
  CUstreamBatchMemOpParams write{};
  write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = reinterpret_cast<CUdeviceptr>(position);  // pinned memory has one address for host and device
  write.writeValue.value = static_cast<cuuint32_t>(value);
  if (const CUresult status = batch_memory_operations(stream, 1, &write, 0); status != CUDA_SUCCESS) {
    throw SystemError("CUDA: noting how far a stream has come (cuStreamBatchMemOp) failed: error " + std::to_string(status));
  }
}

}  // namespace consist::cuda
