// Results of attention to blocks of the keys, brought together in the dtype of the operands. A warp merges one row of one head;
// sums take a pack of 16 bytes per thread.
#include <type_traits>

#include "plugins/devices/cuda/kernels/attention/attention_merge.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

struct Others {
  OtherBlock block[most_other_blocks];
  explicit Others(const OtherBlock (&given)[most_other_blocks]) {
    for (std::size_t n = 0; n < most_other_blocks; ++n) block[n] = given[n];
  }
};

template <typename T, int N>
__global__ void __launch_bounds__(threads) merge_blocks(Others others, T* __restrict__ o, float* __restrict__ lse, PartRows rows,
                                                        std::int64_t heads, std::int64_t count) {
  const std::int64_t unit = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) / 32;  // (b, head, row)
  if (unit >= count) return;
  const std::int64_t row = unit % rows.rows, line = unit / rows.rows, head = line % heads, b = line / heads;
  const float own = lse[unit];
  float of_block[most_other_blocks], most = own;
#pragma unroll
  for (std::size_t n = 0; n < most_other_blocks; ++n) {
    const OtherBlock& block = others.block[n];
    const bool here = block.data != nullptr && row >= block.first;
    of_block[n] = here ? block.lse[line * (rows.rows - block.first) + row - block.first] : -INFINITY;
    most = fmaxf(most, of_block[n]);
  }
  float sum = expf(own - most);
#pragma unroll
  for (std::size_t n = 0; n < most_other_blocks; ++n) sum += expf(of_block[n] - most);
  const float merged = most + logf(sum), keep = expf(own - merged);
  __syncwarp();
  if (threadIdx.x % 32 == 0) lse[unit] = merged;
  const std::int64_t dim = rows.columns / heads, at = (b * rows.rows + row) * rows.columns + head * dim;
  for (std::int64_t column = threadIdx.x % 32 * N; column < dim; column += 32 * N) {
    Pack<T, N> made = load_pack<N>(o + at + column);
    float element[N];
#pragma unroll
    for (int k = 0; k < N; ++k) element[k] = number(made.element[k]) * keep;
#pragma unroll
    for (std::size_t n = 0; n < most_other_blocks; ++n) {
      if (of_block[n] == -INFINITY) continue;
      const float take = expf(of_block[n] - merged);
      const Pack<T, N> added = load_pack<N>(static_cast<const T*>(others.block[n].data) + at + column);
#pragma unroll
      for (int k = 0; k < N; ++k) element[k] += number(added.element[k]) * take;
    }
#pragma unroll
    for (int k = 0; k < N; ++k) made.element[k] = rounded<T>(element[k]);
    store_pack<N>(o + at + column, made);
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(threads)
    add_blocks(Others others, T* __restrict__ dq, PartRows rows, std::int64_t stride, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t packs = rows.columns / N, column = i % packs * N, line = i / packs, row = line % rows.rows;
  Pack<T, N> made = load_pack<N>(dq + line * stride + column);
  float element[N];
#pragma unroll
  for (int k = 0; k < N; ++k) element[k] = number(made.element[k]);
#pragma unroll
  for (std::size_t n = 0; n < most_other_blocks; ++n) {
    const OtherBlock& block = others.block[n];
    if (block.data == nullptr || row < block.first) continue;
    const Pack<T, N> added = load_pack<N>(static_cast<const T*>(block.data) + line * rows.columns + column);
#pragma unroll
    for (int k = 0; k < N; ++k) element[k] += number(added.element[k]);
  }
#pragma unroll
  for (int k = 0; k < N; ++k) made.element[k] = rounded<T>(element[k]);
  store_pack<N>(dq + line * stride + column, made);
}

template <typename Launch>
void by_type(DType type, void* tensor, Launch launch) {
  if (type == DType::f32)
    launch(static_cast<float*>(tensor));
  else
    launch(static_cast<bf16*>(tensor));
}

template <typename T, typename Launch>
void in_widest_packs(bool in_packs, Launch launch) {
  if (in_packs)
    launch(std::integral_constant<int, per_access<T>>{});
  else
    launch(std::integral_constant<int, 1>{});
}

}  // namespace

void merge_attention_blocks(DType type, const PartRows& rows, std::int64_t heads, const OtherBlock (&others)[most_other_blocks],
                            void* o, float* lse, cudaStream_t stream) {
  const std::int64_t count = rows.batch * rows.rows * heads;
  if (count == 0) return;
  by_type(type, o, [&]<typename T>(T* to) {
    const bool packs = in_packs(rows.columns / heads, per_access<T>, {to, others[0].data, others[1].data});
    in_widest_packs<T>(packs, [&]<int N>(std::integral_constant<int, N>) {
      merge_blocks<T, N>
          <<<blocks_of(divided_up(count * 32, threads)), threads, 0, stream>>>(Others(others), to, lse, rows, heads, count);
    });
  });
  check_launch("attention, merge of blocks");
}

void add_attention_blocks(DType type, const PartRows& rows, const OtherBlock (&others)[most_other_blocks], void* dq,
                          std::int64_t stride, cudaStream_t stream) {
  const std::int64_t elements = rows.batch * rows.rows * rows.columns;
  if (elements == 0) return;
  by_type(type, dq, [&]<typename T>(T* to) {
    const bool packs =
        in_packs(rows.columns, per_access<T>, {to, others[0].data, others[1].data}) && in_step(per_access<T>, {stride});
    in_widest_packs<T>(packs, [&]<int N>(std::integral_constant<int, N>) {
      const std::int64_t count = elements / N;
      add_blocks<T, N><<<blocks_of(divided_up(count, threads)), threads, 0, stream>>>(Others(others), to, rows, stride, count);
    });
  });
  check_launch("attention_grad, sum of blocks");
}

}  // namespace consist::cuda
