// A warp merges one row of one head: eight of neighbouring rows are a block, whose logarithms lie in one piece of memory. Sums of
// gradients take a pack of 16 bytes of the sum per thread.
#include <type_traits>

#include "plugins/devices/cuda/kernels/attention/attention_merge.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

constexpr int pack = per_access<float>;

template <int N>
using Width = std::integral_constant<int, N>;

template <typename T, int N>
__global__ void __launch_bounds__(threads)
    merge(const T* __restrict__ part_o, const float* __restrict__ part_lse, bool first_part, float* __restrict__ o,
          float* __restrict__ lse, PartRows rows, std::int64_t heads, std::int64_t count) {
  const std::int64_t unit = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) / 32;  // (b, head, row)
  if (unit >= count) return;
  const std::int64_t row = unit % rows.rows, head = unit / rows.rows % heads, b = unit / rows.rows / heads,
                     within = row - rows.first;
  const bool here = within >= 0 && within < rows.count;
  if (!here && !first_part) return;
  const float of_part = here ? part_lse[(b * heads + head) * rows.count + within] : -INFINITY;
  const float before = first_part ? -INFINITY : lse[unit];
  const float most = fmaxf(of_part, before);
  const float merged = most == -INFINITY ? -INFINITY : most + logf(expf(of_part - most) + expf(before - most));
  const float take = of_part == -INFINITY ? 0.0F : expf(of_part - merged),
              keep = before == -INFINITY ? 0.0F : expf(before - merged);
  __syncwarp();
  if (threadIdx.x % 32 == 0) lse[unit] = merged;
  const std::int64_t dim = rows.columns / heads, at = (b * rows.rows + row) * rows.columns + head * dim;
  for (std::int64_t column = threadIdx.x % 32 * N; column < dim; column += 32 * N) {
    Pack<float, N> made{};
    if (!first_part) made = load_pack<N>(o + at + column);
    if (here) {
      const Pack<T, N> added = load_pack<N>(part_o + at + column);
#pragma unroll
      for (int k = 0; k < N; ++k) made.element[k] = made.element[k] * keep + number(added.element[k]) * take;
    }
    store_pack<N>(o + at + column, made);
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(threads)
    add(const T* __restrict__ part, bool adds, float* __restrict__ sum, PartRows rows, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t packs = rows.columns / N, row = i / packs % rows.rows;
  const bool here = row >= rows.first && row < rows.first + rows.count;
  if (!here && adds) return;
  Pack<float, N> made{};
  if (adds) made = load_pack<N>(sum + i * N);
  if (here) {
    const Pack<T, N> added = load_pack<N>(part + i * N);
#pragma unroll
    for (int k = 0; k < N; ++k) made.element[k] += number(added.element[k]);
  }
  store_pack<N>(sum + i * N, made);
}

/// `launch` with the widest packs that the rows allow.
template <typename Launch>
void in_widest_packs(std::int64_t elements, std::initializer_list<const void*> pointers, Launch launch) {
  if (in_packs(elements, pack, pointers))
    launch(Width<pack>{});
  else
    launch(Width<1>{});
}

template <typename Launch>
void by_type(DType type, const void* part, Launch launch) {
  if (type == DType::f32)
    launch(static_cast<const float*>(part));
  else
    launch(static_cast<const bf16*>(part));
}

}  // namespace

void merge_attention(DType type, const PartRows& rows, std::int64_t heads, const void* part_o, const float* part_lse,
                     bool first_part, float* o, float* lse, cudaStream_t stream) {
  const std::int64_t count = rows.batch * rows.rows * heads;
  if (count == 0) return;
  by_type(type, part_o, [&]<typename T>(const T* part) {
    in_widest_packs(rows.columns / heads, {part, o}, [&]<int N>(Width<N>) {
      merge<T, N><<<blocks_of(divided_up(count * 32, threads)), threads, 0, stream>>>(part, part_lse, first_part, o, lse, rows,
                                                                                      heads, count);
    });
  });
  check_launch("attention_part, merge");
}

void add_attention_part(DType type, const PartRows& rows, const void* part, bool adds, float* sum, cudaStream_t stream) {
  const std::int64_t elements = rows.batch * rows.rows * rows.columns;
  if (elements == 0) return;
  by_type(type, part, [&]<typename T>(const T* from) {
    in_widest_packs(rows.columns, {from, sum}, [&]<int N>(Width<N>) {
      const std::int64_t count = elements / N;
      add<T, N><<<blocks_of(divided_up(count, threads)), threads, 0, stream>>>(from, adds, sum, rows, count);
    });
  });
  check_launch("attention_part_grad, sum");
}

}  // namespace consist::cuda
