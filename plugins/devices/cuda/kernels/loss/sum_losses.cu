#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/loss/sum_losses.h"

namespace consist::cuda {
namespace {

constexpr int sum_threads = 512;

__global__ void sum_losses(const float* losses, std::int64_t count, float scale, const float* before, float* loss) {
  __shared__ double part[sum_threads];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += sum_threads) sum += losses[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = sum_threads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *loss = (before == nullptr ? 0.0F : *before) + static_cast<float>(part[0] * scale);
}

}  // namespace

void enqueue_sum_losses(const float* losses, std::int64_t count, float scale, const float* before, float* loss,
                        cudaStream_t stream) {
  sum_losses<<<1, sum_threads, 0, stream>>>(losses, count, scale, before, loss);
  check_launch("sum_losses");
}

}  // namespace consist::cuda
