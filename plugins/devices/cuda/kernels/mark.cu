#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/mark.h"

namespace consist::cuda {
namespace {
__global__ void mark(volatile std::int32_t* position, std::int32_t value) { *position = value; }
}  // namespace

void enqueue_mark(std::int32_t* position, std::int32_t value, cudaStream_t stream) {
  mark<<<1, 1, 0, stream>>>(position, value);
  check_launch("mark");
}

}  // namespace consist::cuda
