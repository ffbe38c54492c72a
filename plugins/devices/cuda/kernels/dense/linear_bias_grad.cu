// linear_bias_grad: db (+)= Σ over rows of dy. Blocks sum ranges of rows, a second launch adds those in order.
#include "plugins/devices/cuda/kernels/dense/column_sums.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

constexpr int lanes = 32;  // threads side by side, one pack of columns each
constexpr int depth = 8;   // threads of a pack, each of which adds every depth-th row of the block's
constexpr int batch = 4;   // rows that a thread loads before it adds the first

template <typename T, int N>
__global__ void __launch_bounds__(lanes* depth)
    sum_rows(const T* __restrict__ dy, std::int64_t stride, std::int64_t rows, std::int64_t columns, std::int64_t rows_of_block,
             float* __restrict__ partial) {
  __shared__ float sums[depth][lanes * N];
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * lanes + threadIdx.x) * N;
  const std::int64_t first = blockIdx.y * rows_of_block, last = min(rows, first + rows_of_block);
  float sum[N] = {};
  if (column < columns) {
    for (std::int64_t row = first + threadIdx.y; row < last; row += depth * batch) {
      Pack<T, N> loaded[batch];
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        if (row + b * depth < last) loaded[b] = load_pack<N>(dy + (row + b * depth) * stride + column);
      }
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        if (row + b * depth >= last) continue;
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += number(loaded[b].element[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) sums[threadIdx.y][threadIdx.x * N + i] = sum[i];
  __syncthreads();
  for (int i = threadIdx.y * lanes + threadIdx.x; i < lanes * N; i += lanes * depth) {
    const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * lanes * N + i;
    if (mine >= columns) break;
    float total = 0.0F;
    for (int y = 0; y < depth; ++y) total += sums[y][i];
    partial[blockIdx.y * columns + mine] = total;
  }
}

template <typename T, typename G>
class LinearBiasGrad final : public Kernel {
 public:
  LinearBiasGrad(const KernelRequest& r, const KernelSettings& s)
      : rows_(r.inputs[0].shape.rows()), columns_(r.inputs[0].shape.last()) {
    // About eight blocks on every multiprocessor, as far as there are rows for all threads.
    const std::int64_t across = std::max<std::int64_t>(1, divided_up(columns_, lanes * per_access<T>));
    const std::int64_t parts =
        std::clamp<std::int64_t>(8 * s.multiprocessors / across, 1, std::max<std::int64_t>(1, divided_up(rows_, depth * batch)));
    rows_of_block_ = divided_up(std::max<std::int64_t>(rows_, 1), parts);
    parts_ = divided_up(std::max<std::int64_t>(rows_, 1), rows_of_block_);
  }
  std::int64_t workspace_bytes() const override { return parts_ * columns_ * 4; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const T* dy = in[0].as<T>();  // [rows, columns], possibly a strided view of a wider tensor
    const std::int64_t stride = in[0].leading_dimension();
    auto* partial = static_cast<float*>(workspace);  // [parts, columns]
    if (columns_ == 0) return;
    constexpr int N = per_access<T>;
    const auto grid = [&](int pack) { return dim3(blocks_of(divided_up(columns_, lanes * pack)), blocks_of(parts_)); };
    if (in_packs(columns_, N, {dy}) && in_step(N, {stride})) {
      sum_rows<T, N><<<grid(N), dim3(lanes, depth), 0, stream_of(queue)>>>(dy, stride, rows_, columns_, rows_of_block_, partial);
    } else {
      sum_rows<T, 1><<<grid(1), dim3(lanes, depth), 0, stream_of(queue)>>>(dy, stride, rows_, columns_, rows_of_block_, partial);
    }
    check_launch("linear_bias_grad");
    add_partial_sums(partial, parts_, columns_, out[0].as<G>(), !at(in, 1).absent(), stream_of(queue));
  }

 private:
  std::int64_t rows_, columns_, rows_of_block_ = 1, parts_ = 1;
};

Made make_linear_bias_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<LinearBiasGrad>(r.inputs[0].dtype, r.outputs[0].dtype, r, s);
}

}  // namespace

CONSIST_KERNEL(linear_bias_grad, make_linear_bias_grad);

}  // namespace consist::cuda
