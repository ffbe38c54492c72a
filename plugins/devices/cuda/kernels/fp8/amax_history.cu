// record_amaxes, of all histories in one launch.
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/optimizer/tensor_list.cuh"

namespace consist::cuda {
namespace {

struct History {
  float* values;  ///< the largest of the others, then the newest, ..., the oldest
  std::int64_t length;
  std::uint32_t first;
};

/// A block for each history; `amaxes` [ranks, n] begins at the columns of the first.
__global__ void __launch_bounds__(threads)
    record(const __grid_constant__ TensorList<History> list, const float* __restrict__ amaxes, std::int64_t ranks, std::int64_t n,
           std::int64_t columns) {
  __shared__ float of_warp[threads / 32];
  const History history = list.entry[blockIdx.x];
  const float* mine = amaxes + blockIdx.x * columns;
  const auto largest_of_block = [&](float value) {
    __syncthreads();
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, distance));
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    for (float other : of_warp) value = fmaxf(value, other);
    return value;
  };
  float newest = 0;
  for (std::int64_t i = threadIdx.x; i < ranks * columns; i += threads)
    newest = fmaxf(newest, mine[i / columns * n + i % columns]);
  newest = largest_of_block(newest);

  // From the oldest on, a stretch at a time: each value moves by one place.
  float largest = newest;
  for (std::int64_t end = history.length; end > 1; end -= threads) {
    const std::int64_t from = end - 1 - threadIdx.x;
    const float value = from >= 1 ? history.values[from] : 0.0F;
    __syncthreads();
    if (from >= 1) history.values[from + 1] = value;
    largest = fmaxf(largest, value);
    __syncthreads();
  }
  largest = largest_of_block(largest);
  if (threadIdx.x != 0) return;
  history.values[1] = newest;
  history.values[0] = largest;
}

class RecordAmaxes final : public Kernel {
 public:
  explicit RecordAmaxes(const KernelRequest& r)
      : first_(r.attributes.integer("first")), columns_(r.attributes.integer("columns")) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const float* amaxes = in[0].as<float>() + first_;
    for (std::size_t i = 0; i < out.size();) {
      list_.clear();
      for (; i < out.size() && !list_.full(); ++i) list_.add({out[i].as<float>(), out[i].shape[0] - 1, 0}, 1, 1);
      record<<<blocks_of(list_.count), threads, 0, stream_of(queue)>>>(list_, amaxes, in[0].shape[0], in[0].shape[1], columns_);
      check_launch("record_amaxes");
      amaxes += list_.count * columns_;
    }
  }

 private:
  std::int64_t first_, columns_;
  TensorList<History> list_;
};

Made make_record_amaxes(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<RecordAmaxes>(r);
}

}  // namespace

CONSIST_KERNEL(record_amaxes, make_record_amaxes);

}  // namespace consist::cuda
