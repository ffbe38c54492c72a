#include "plugins/devices/cuda/kernels/dense/column_sums.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

constexpr int width = 32;  // columns of a block: one warp's access of 128 bytes
constexpr int column_depth = 32;  // threads of a column, each of which adds every depth-th part, of 256 parts all at once

template <typename G>
__global__ void __launch_bounds__(width* column_depth)
    add_parts(const float* __restrict__ partial, int parts, std::int64_t columns, G* to, bool accumulate) {
  __shared__ float sums[column_depth][width + 1];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * width + threadIdx.x;
  float sum = 0.0F;
  if (column < columns) {
#pragma unroll 8
    for (int part = threadIdx.y; part < parts; part += column_depth) sum += partial[part * columns + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Warp y adds the column_depth sums of column y: one lane each.
  const float total = sum_of_lanes(sums[threadIdx.x][threadIdx.y]);
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * width + threadIdx.y;
  if (threadIdx.x == 0 && mine < columns) to[mine] = rounded<G>(accumulate ? number(to[mine]) + total : total);
}

}  // namespace

template <typename G>
void add_partial_sums(const float* partial, std::int64_t parts, std::int64_t columns, G* to, bool accumulate,
                      cudaStream_t stream) {
  if (columns == 0) return;
  add_parts<G><<<blocks_of(divided_up(columns, width)), dim3(width, column_depth), 0, stream>>>(partial, static_cast<int>(parts),
                                                                                         columns, to, accumulate);
  check_launch("add_parts");
}

template void add_partial_sums<float>(const float*, std::int64_t, std::int64_t, float*, bool, cudaStream_t);
template void add_partial_sums<bf16>(const float*, std::int64_t, std::int64_t, bf16*, bool, cudaStream_t);

}  // namespace consist::cuda
