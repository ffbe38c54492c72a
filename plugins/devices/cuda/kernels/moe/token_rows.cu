// Copies of rows between orders of the sequence: a thread moves a pack of 16 bytes, or an element where rows do not begin at packs.
#include "plugins/devices/cuda/kernels/moe/token_rows.h"

#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

/// As index_of() and position_of() of consist/token_order.h, which are for the host.
struct Order {
  std::int64_t chunk, zigzag;
  explicit Order(const TokenRows& rows)
      : chunk(rows.zigzag == 0 ? rows.length : rows.length / (2 * rows.zigzag)), zigzag(rows.zigzag) {}
  __device__ std::int64_t index(std::int64_t position) const {
    if (zigzag == 0) return position;
    const std::int64_t at = position / chunk;
    return (at < zigzag ? 2 * at : 2 * (2 * zigzag - 1 - at) + 1) * chunk + position % chunk;
  }
  __device__ std::int64_t position(std::int64_t index) const {
    if (zigzag == 0) return index;
    const std::int64_t at = index / chunk, pair = at / 2;
    return (at % 2 == 0 ? pair : 2 * zigzag - 1 - pair) * chunk + index % chunk;
  }
};

template <typename T, int N>
__global__ void __launch_bounds__(threads)
    copy_rows(const T* __restrict__ from, T* __restrict__ to, TokenRows rows, Order order, std::int64_t stride, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t packs = rows.columns / N, column = i % packs * N, row = i / packs, position = row % rows.kept,
                     b = row / rows.kept;
  store_pack<N>(to + row * rows.columns + column,
                load_pack<N>(from + (b * rows.length + order.index(position)) * stride + column));
}

template <typename T>
struct Summands {
  const T* data[most_summands];
  std::int64_t keys[most_summands];  // 0: there is none
};

template <typename T, int N>
__global__ void __launch_bounds__(threads) sum_rows(Summands<T> summands, T* __restrict__ to, TokenRows rows, Order order,
                                                    std::int64_t stride, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t packs = rows.columns / N, column = i % packs * N, row = i / packs, index = row % rows.length,
                     b = row / rows.length, position = order.position(index);
  float sum[N] = {};
#pragma unroll
  for (std::size_t s = 0; s < most_summands; ++s) {
    if (position >= summands.keys[s]) continue;
    const Pack<T, N> pack = load_pack<N>(summands.data[s] + (b * rows.kept + position) * rows.columns + column);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += number(pack.element[k]);
  }
  Pack<T, N> made;
#pragma unroll
  for (int k = 0; k < N; ++k) made.element[k] = rounded<T>(sum[k]);
  store_pack<N>(to + row * stride + column, made);
}

template <typename T>
void copy(const TokenRows& rows, const T* from, std::int64_t stride, T* to, cudaStream_t stream) {
  constexpr int N = per_access<T>;
  const std::int64_t elements = rows.batch * rows.kept * rows.columns;
  if (elements == 0) return;
  const auto launch = [&]<int Width>(std::integral_constant<int, Width>) {
    const std::int64_t count = elements / Width;
    copy_rows<T, Width><<<blocks_of(divided_up(count, threads)), threads, 0, stream>>>(from, to, rows, Order(rows), stride, count);
  };
  if (in_packs(rows.columns, N, {from, to}) && in_step(N, {stride}))
    launch(std::integral_constant<int, N>{});
  else
    launch(std::integral_constant<int, 1>{});
  check_launch("rows by position");
}

template <typename T>
void sum(const TokenRows& rows, std::span<const Summand> given, T* to, std::int64_t stride, cudaStream_t stream) {
  constexpr int N = per_access<T>;
  Summands<T> summands{};
  for (std::size_t s = 0; s < given.size(); ++s) {
    summands.data[s] = static_cast<const T*>(given[s].data);
    summands.keys[s] = given[s].keys;
  }
  const std::int64_t elements = rows.batch * rows.length * rows.columns;
  if (elements == 0) return;
  const auto launch = [&]<int Width>(std::integral_constant<int, Width>) {
    const std::int64_t count = elements / Width;
    sum_rows<T, Width><<<blocks_of(divided_up(count, threads)), threads, 0, stream>>>(summands, to, rows, Order(rows), stride, count);
  };
  if (in_packs(rows.columns, N, {summands.data[0], summands.data[1], to}) && in_step(N, {stride}))
    launch(std::integral_constant<int, N>{});
  else
    launch(std::integral_constant<int, 1>{});
  check_launch("sum of rows from positions");
}

}  // namespace

void rows_by_position(DType type, const TokenRows& rows, const void* from, std::int64_t stride, void* to, cudaStream_t stream) {
  if (type == DType::f32)
    copy(rows, static_cast<const float*>(from), stride, static_cast<float*>(to), stream);
  else
    copy(rows, static_cast<const bf16*>(from), stride, static_cast<bf16*>(to), stream);
}

void sum_from_positions(DType type, const TokenRows& rows, std::span<const Summand> summands, void* to, std::int64_t stride,
                        cudaStream_t stream) {
  if (type == DType::f32)
    sum(rows, summands, static_cast<float*>(to), stride, stream);
  else
    sum(rows, summands, static_cast<bf16*>(to), stride, stream);
}

}  // namespace consist::cuda
