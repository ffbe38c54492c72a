// Products of experts' rows on any GPU: f32, and bf16 where there are no products of warpgroups or rows do not lie at multiples
// of 16 bytes, and 8-bit floats, which are multiplied as bf16. A block has a tile of 64 by 64; which one, it finds from the
// counts. Written for few lines, not for speed.
#include <mma.h>

#include "plugins/devices/cuda/kernels/fp8/float8.cuh"
#include "plugins/devices/cuda/kernels/moe/grouped.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

constexpr int side = 64, depth = 32;

template <typename T>
__device__ __forceinline__ T as_number(T value) {
  return value;
}
/// Exact.
__device__ __forceinline__ bf16 as_number(__nv_fp8_e4m3 code) {
  return rounded<bf16>(static_cast<float>(code));
}
__device__ __forceinline__ bf16 as_number(__nv_fp8_e5m2 code) {
  return rounded<bf16>(static_cast<float>(code));
}

/// A tile of an operand in shared memory, as it lies in the tensor: lines of `depth` elements that run along k, one for each of
/// `side`, or lines of `side` elements, one for each k.
template <typename T, bool along_k>
struct Operand {
  static constexpr int lines = along_k ? side : depth, width = along_k ? depth : side, pitch = width + per_access<T>;
  T element[lines * pitch];

  __device__ float at(int i, int k) const { return number(along_k ? element[i * pitch + k] : element[k * pitch + i]); }
  /// Loads the first `element_count` elements of the first `line_count` lines of `from`, `apart` elements apart; zeros beyond.
  template <bool packs>
  __device__ void load(const T* from, std::int64_t apart, std::int64_t line_count, std::int64_t element_count) {
    constexpr int N = packs ? per_access<T> : 1, of_line = width / N;
    for (int i = static_cast<int>(threadIdx.x); i < lines * of_line; i += threads) {
      const int line = i / of_line, first = i % of_line * N;
      const bool inside = line < line_count && first < element_count;
      store_pack<N>(element + line * pitch + first, inside ? load_pack<N>(from + line * apart + first) : Pack<T, N>{});
    }
  }
  /// The same of codes, as numbers.
  template <typename Code>
  __device__ void load_codes(const Code* from, std::int64_t apart, std::int64_t line_count, std::int64_t element_count) {
    for (int i = static_cast<int>(threadIdx.x); i < lines * width; i += threads) {
      const int line = i / width, first = i % width;
      element[line * pitch + first] =
          line < line_count && first < element_count ? as_number(from[line * apart + first]) : rounded<T>(0.0F);
    }
  }
};

/// The product of two tiles' operands, added up over k.
template <typename T, bool a_along_k, bool b_along_k>
struct Sums;

template <bool a_along_k, bool b_along_k>
struct Sums<float, a_along_k, b_along_k> {
  float sum[4][4] = {};
  __device__ static int row() { return static_cast<int>(threadIdx.x) / 16; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % 16; }
  __device__ void add(const Operand<float, a_along_k>& a, const Operand<float, b_along_k>& b) {
#pragma unroll 8
    for (int k = 0; k < depth; ++k) {
      float left[4], right[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = a.at(row() + 16 * i, k);
        right[i] = b.at(column() + 16 * i, k);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += left[i] * right[j];
      }
    }
  }
  __device__ void put(float* to, int pitch) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) to[(row() + 16 * i) * pitch + column() + 16 * j] = sum[i][j];
    }
  }
};

/// A warp has 16 by 32.
template <bool a_along_k, bool b_along_k>
struct Sums<bf16, a_along_k, b_along_k> {
  using A = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, bf16,
                                   std::conditional_t<a_along_k, nvcuda::wmma::row_major, nvcuda::wmma::col_major>>;
  using B = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, bf16,
                                   std::conditional_t<b_along_k, nvcuda::wmma::col_major, nvcuda::wmma::row_major>>;
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sum[2];

  __device__ Sums() {
    for (auto& s : sum) nvcuda::wmma::fill_fragment(s, 0.0F);
  }
  __device__ static int row() { return static_cast<int>(threadIdx.x) / 32 % 4 * 16; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) / 128 * 32; }
  __device__ void add(const Operand<bf16, a_along_k>& a, const Operand<bf16, b_along_k>& b) {
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
      A left;
      nvcuda::wmma::load_matrix_sync(left, a.element + (a_along_k ? row() * a.pitch + k : k * a.pitch + row()), a.pitch);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int n = column() + 16 * j;
        B right;
        nvcuda::wmma::load_matrix_sync(right, b.element + (b_along_k ? n * b.pitch + k : k * b.pitch + n), b.pitch);
        nvcuda::wmma::mma_sync(sum[j], left, right, sum[j]);
      }
    }
  }
  __device__ void put(float* to, int pitch) const {
    for (int j = 0; j < 2; ++j)
      nvcuda::wmma::store_matrix_sync(to + row() * pitch + column() + 16 * j, sum[j], pitch, nvcuda::wmma::mem_row_major);
  }
};

struct Place {
  int expert;
  std::int64_t row, rows;  ///< of the tile, or, for weights, of the expert
};

/// The `index`-th tile of rows, counted over experts and then padding, for which `expert` is their number. rows 0: there is none.
__device__ Place find_rows_tile(const std::int32_t* counts, int experts, std::int64_t rows, std::int64_t index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int64_t row = 0, tile = 0;
  for (int first = 0; first <= experts; first += 32) {
    const int expert = first + lane;
    std::int64_t own = expert < experts ? counts[expert] : 0, end = own;
    for (int distance = 1; distance < 32; distance *= 2) {
      const std::int64_t before = __shfl_up_sync(all_lanes, end, distance);
      if (lane >= distance) end += before;
    }
    end += row;
    row = __shfl_sync(all_lanes, end, 31);
    if (expert == experts) {
      own = rows - end;
      end = rows;
    }
    const std::int64_t tiles = (own + side - 1) / side;
    std::int64_t last = tiles;
    for (int distance = 1; distance < 32; distance *= 2) {
      const std::int64_t before = __shfl_up_sync(all_lanes, last, distance);
      if (lane >= distance) last += before;
    }
    last += tile;
    tile = __shfl_sync(all_lanes, last, 31);
    const unsigned behind = __ballot_sync(all_lanes, index < last);
    if (behind == 0) continue;
    const int found = __ffs(static_cast<int>(behind)) - 1;
    const std::int64_t within = (index - (last - tiles)) * side;
    const std::int64_t at = __shfl_sync(all_lanes, end - own + within, found), left = __shfl_sync(all_lanes, own - within, found);
    return {first + found, at, left < side ? left : side};
  }
  return {experts, 0, 0};
}

__device__ Place find_expert(const std::int32_t* counts, int expert) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int32_t sum = 0;
  for (int e = lane; e < expert; e += 32) sum += counts[e];
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(all_lanes, sum, distance);
  return {expert, sum, counts[expert]};
}

/// d [m, n] = a [m, k] b [k, n] of an expert. d may hold what is added to.
template <GroupedProduct product, typename T, typename D, bool packs>
__global__ void __launch_bounds__(threads)
    multiply_tile(const T* __restrict__ a, const T* __restrict__ b, const std::int32_t* __restrict__ counts, D* d,
                  const GroupedSizes sizes, bool add) {
  constexpr bool of_weights = product == GroupedProduct::weight_grad;
  constexpr bool a_along_k = !of_weights, b_along_k = product == GroupedProduct::forward;
  __shared__ __align__(128) Operand<T, a_along_k> left;
  __shared__ __align__(128) Operand<T, b_along_k> right;
  constexpr int pitch = side + 4;
  __shared__ __align__(128) float made[side * pitch];

  const std::int64_t column = std::int64_t{blockIdx.x} * side, columns = sizes.n - column;
  Place place;
  std::int64_t first, lines, k_end;
  if constexpr (of_weights) {
    place = find_expert(counts, static_cast<int>(blockIdx.z));
    first = std::int64_t{blockIdx.y} * side;
    lines = sizes.m - first;
    k_end = place.rows;
  } else {
    place = find_rows_tile(counts, sizes.experts, sizes.rows, blockIdx.y);
    if (place.rows == 0) return;
    first = place.row;
    lines = place.rows;
    k_end = place.expert < sizes.experts ? sizes.k : 0;
  }

  Sums<T, a_along_k, b_along_k> sums;
  for (std::int64_t k = 0; k < k_end; k += depth) {
    const std::int64_t left_of_k = k_end - k;
    if constexpr (of_weights) {
      left.template load<packs>(a + (place.row + k) * sizes.m + first, sizes.m, left_of_k, lines);
      right.template load<packs>(b + (place.row + k) * sizes.n + column, sizes.n, left_of_k, columns);
    } else {
      const T* const w = b + place.expert * sizes.n * sizes.k;
      left.template load<packs>(a + first * sizes.k + k, sizes.k, lines, left_of_k);
      if constexpr (b_along_k)
        right.template load<packs>(w + column * sizes.k + k, sizes.k, columns, left_of_k);
      else
        right.template load<packs>(w + k * sizes.n + column, sizes.n, left_of_k, columns);
    }
    __syncthreads();
    sums.add(left, right);
    __syncthreads();
  }
  sums.put(made, pitch);
  __syncthreads();
  D* const to = d + (of_weights ? place.expert * sizes.m * sizes.n : 0) + first * sizes.n + column;
  for (int i = static_cast<int>(threadIdx.x); i < side * side; i += threads) {
    const int row = i / side, at = i % side;
    if (row >= lines || at >= columns) continue;
    D& element = to[row * sizes.n + at];
    const float sum = made[row * pitch + at];
    element = rounded<D>(add ? number(element) + sum : sum);
  }
}

/// d [m, n] = descales · a [m, k] b [n, k] of an expert, whose b begins `expert_apart` codes behind the one before; its lines lie
/// `line_apart` apart.
template <typename A, typename D>
__global__ void __launch_bounds__(threads)
    multiply_codes(const A* __restrict__ a, const float* __restrict__ a_descale, const __nv_fp8_e4m3* __restrict__ b,
                   const float* __restrict__ b_descale, const std::int32_t* __restrict__ counts, D* __restrict__ d,
                   const GroupedSizes sizes, std::int64_t expert_apart, std::int64_t line_apart) {
  __shared__ __align__(128) Operand<bf16, true> left;
  __shared__ __align__(128) Operand<bf16, true> right;
  constexpr int pitch = side + 4;
  __shared__ __align__(128) float made[side * pitch];
  const std::int64_t column = std::int64_t{blockIdx.x} * side, columns = sizes.n - column;
  const Place place = find_rows_tile(counts, sizes.experts, sizes.rows, blockIdx.y);
  if (place.rows == 0) return;
  const __nv_fp8_e4m3* const w = b + place.expert * expert_apart + column * line_apart;
  Sums<bf16, true, true> sums;
  for (std::int64_t k = 0; place.expert < sizes.experts && k < sizes.k; k += depth) {
    left.load_codes(a + place.row * sizes.k + k, sizes.k, place.rows, sizes.k - k);
    right.load_codes(w + k, line_apart, columns, sizes.k - k);
    __syncthreads();
    sums.add(left, right);
    __syncthreads();
  }
  sums.put(made, pitch);
  __syncthreads();
  const float scale = *a_descale * *b_descale;
  D* const to = d + place.row * sizes.n + column;
  for (int i = static_cast<int>(threadIdx.x); i < side * side; i += threads) {
    const int row = i / side, at = i % side;
    if (row < place.rows && at < columns) to[row * sizes.n + at] = rounded<D>(scale * made[row * pitch + at]);
  }
}

template <typename A, typename D>
class PlainFloat8Product final : public Kernel {
 public:
  PlainFloat8Product(GroupedProduct product, const GroupedSizes& sizes) : sizes_(sizes) {
    const bool transposed = product == GroupedProduct::input_grad;
    expert_apart_ = transposed ? sizes.k : sizes.n * sizes.k;
    line_apart_ = transposed ? sizes.experts * sizes.k : sizes.k;
  }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const dim3 grid(blocks_of(divided_up(sizes_.n, side)), blocks_of(divided_up(sizes_.rows, side) + sizes_.experts));
    if (grid.x == 0 || grid.y == 0) return;
    multiply_codes<<<grid, threads, 0, stream_of(queue)>>>(
        static_cast<const A*>(in[0].data), in[1].as<float>(), static_cast<const __nv_fp8_e4m3*>(in[2].data), in[3].as<float>(),
        in[4].as<std::int32_t>(), out[0].as<D>(), sizes_, expert_apart_, line_apart_);
    check_launch("grouped product of 8-bit floats");
  }

 private:
  GroupedSizes sizes_;
  std::int64_t expert_apart_, line_apart_;
};

template <GroupedProduct product, typename T, typename D>
class PlainProduct final : public Kernel {
 public:
  explicit PlainProduct(const GroupedSizes& sizes) : sizes_(sizes) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const auto operands = grouped_operands(product, in);
    const std::int64_t down =
        product == GroupedProduct::weight_grad ? divided_up(sizes_.m, side) : divided_up(sizes_.rows, side) + sizes_.experts;
    const dim3 grid(blocks_of(divided_up(sizes_.n, side)), blocks_of(down),
                    product == GroupedProduct::weight_grad ? blocks_of(sizes_.experts) : 1);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    constexpr int N = per_access<T>;
    const bool packs = in_step(N, {sizes_.m, sizes_.n, sizes_.k}) && in_packs(0, N, {operands.a->data, operands.b->data});
    const auto run = packs ? multiply_tile<product, T, D, true> : multiply_tile<product, T, D, false>;
    run<<<grid, threads, 0, stream_of(queue)>>>(operands.a->template as<T>(), operands.b->template as<T>(),
                                                operands.counts->template as<std::int32_t>(), out[0].as<D>(), sizes_,
                                                operands.adds);
    check_launch("grouped product");
  }

 private:
  GroupedSizes sizes_;
};

}  // namespace

Made make_plain_product(GroupedProduct product, const GroupedSizes& sizes, DType type, DType made) {
  const auto of = [&]<GroupedProduct p>() -> Made {
    if (type == DType::f32 && made == DType::f32) return std::make_unique<PlainProduct<p, float, float>>(sizes);
    if (type == DType::bf16 && made == DType::bf16) return std::make_unique<PlainProduct<p, bf16, bf16>>(sizes);
    if constexpr (p == GroupedProduct::weight_grad) {
      if (type == DType::bf16 && made == DType::f32) return std::make_unique<PlainProduct<p, bf16, float>>(sizes);
    }
    return nullptr;
  };
  switch (product) {
    case GroupedProduct::forward:
      return of.template operator()<GroupedProduct::forward>();
    case GroupedProduct::input_grad:
      return of.template operator()<GroupedProduct::input_grad>();
    case GroupedProduct::weight_grad:
      return of.template operator()<GroupedProduct::weight_grad>();
  }
  return nullptr;
}

Made make_plain_float8_product(GroupedProduct product, const GroupedSizes& sizes, const KernelRequest& r) {
  const auto of = [&]<typename A>() -> Made {
    if (r.outputs[0].dtype == DType::f32) return std::make_unique<PlainFloat8Product<A, float>>(product, sizes);
    if (r.outputs[0].dtype == DType::bf16) return std::make_unique<PlainFloat8Product<A, bf16>>(product, sizes);
    return nullptr;
  };
  if (r.inputs[2].dtype != DType::e4m3) return nullptr;
  return r.inputs[0].dtype == DType::e5m2 ? of.template operator()<__nv_fp8_e5m2>() : of.template operator()<__nv_fp8_e4m3>();
}

}  // namespace consist::cuda
