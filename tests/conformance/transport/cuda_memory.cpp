#include <cuda_runtime_api.h>

#include <algorithm>

#include "consist/error.h"
#include "tests/conformance/transport/memory.h"

namespace consist::testing {
namespace {

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw SystemError(std::string("CUDA: ") + what + ": " + cudaGetErrorString(result));
}

class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(int device) : device_(device) {
    check(cudaSetDevice(device_), "taking a device");
    check(cudaFree(nullptr), "making its context");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  }
  ~CudaMemory() override { cudaStreamDestroy(stream_); }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "allocating memory");
    return memory;
  }
  void release(void* memory) noexcept override { cudaFree(memory); }
  void upload(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes, cudaMemcpyHostToDevice); }
  void download(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes, cudaMemcpyDeviceToHost); }
  NativeQueue queue() const override { return stream_; }
  void finish(Communicator& group) override {
    const cudaError_t result = cudaStreamSynchronize(stream_);
    group.check();
    check(result, "waiting for a stream");
  }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copying");
    check(cudaStreamSynchronize(stream_), "waiting for a copy");
  }

  const int device_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Memory> make_cuda_memory(int device) {
  return std::make_unique<CudaMemory>(device);
}

int cuda_devices(std::string& reason) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess) reason = cudaGetErrorString(result);
  return result == cudaSuccess ? count : 0;
}

}  // namespace consist::testing
