// amax and quantize. Quantizing reads a tensor once and writes it in both orders.
#include <cuda_fp8.h>

#include <cmath>
#include <string>

#include "plugins/devices/cuda/kernels/amax.cuh"
#include "plugins/devices/cuda/kernels/fp8.h"
#include "plugins/devices/cuda/kernels/host_report.h"
#include "plugins/devices/cuda/kernels/launch.h"

namespace consist::cuda {
namespace {

constexpr int threads = 256;
constexpr int unroll = 4;

template <bool packed>
__global__ void __launch_bounds__(threads) amax_of(const bf16* __restrict__ x, std::int64_t count, float* amax) {
  PairAmax found;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * (threads * unroll);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * (threads * unroll) + threadIdx.x;
  if constexpr (packed) {
    const uint4* packs = reinterpret_cast<const uint4*>(x);
    for (std::int64_t first = begin; first < count / 8; first += stride) {
      uint4 loaded[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u)
        loaded[u] = first + u * threads < count / 8 ? packs[first + u * threads] : uint4{0, 0, 0, 0};
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        found.add(loaded[u].x);
        found.add(loaded[u].y);
        found.add(loaded[u].z);
        found.add(loaded[u].w);
      }
    }
  } else {
    for (std::int64_t first = begin; first < count; first += stride) {
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        if (first + u * threads < count) found.add(__bfloat16_as_ushort(x[first + u * threads]));
      }
    }
  }
  raise_amax(found.bits(), amax);
}

class Amax final : public Kernel {
 public:
  explicit Amax(const KernelSettings& s) : blocks_at_most_(s.multiprocessors * 8) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const bf16* x = in[0].as<bf16>();
    const std::int64_t count = in[0].shape.elements();
    const bool packed = in_packs(count, 8, {x});
    const std::int64_t blocks = divided_up(packed ? count / 8 : count, threads * unroll);
    const unsigned grid = blocks_of(std::min<std::int64_t>(blocks, blocks_at_most_));
    clear_amax(out[0].as<float>(), stream_of(queue));
    if (grid == 0) return;
    (packed ? amax_of<true> : amax_of<false>)<<<grid, threads, 0, stream_of(queue)>>>(x, count, out[0].as<float>());
    check_launch("amax");
  }

 private:
  int blocks_at_most_;
};

/// As float8_scale (core/program/float8.h).
template <__nv_fp8_interpretation_t format>
__device__ __forceinline__ float scale_of(float amax) {
  const std::uint32_t bits = __float_as_uint(amax);
  if (bits == 0) return 1.0F;
  if (bits >= 0x7f800000U) return __uint_as_float(0x7fc00000U);
  const int room = (format == __NV_E4M3 ? 8 : 15) - ((bits & 0x7fffffU) > 0x600000U ? 1 : 0);
  const int exponent = room - static_cast<int>(bits >> 23) + 254;
  return __uint_as_float(static_cast<std::uint32_t>(min(max(exponent, 1), 253)) << 23);
}

template <__nv_fp8_interpretation_t format>
__device__ __forceinline__ std::uint32_t four_codes(std::uint32_t first, std::uint32_t second, float scale) {
  const float2 low{__uint_as_float(first << 16) * scale, __uint_as_float(first & 0xffff0000U) * scale};
  const float2 high{__uint_as_float(second << 16) * scale, __uint_as_float(second & 0xffff0000U) * scale};
  return static_cast<std::uint32_t>(__nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, format)) |
         static_cast<std::uint32_t>(__nv_cvt_float2_to_fp8x2(high, __NV_SATFINITE, format)) << 16;
}

/// By one thread of the grid.
__device__ __forceinline__ void write_descale(float amax, float scale, float* descale, HostReport::Words* report) {
  *descale = 1.0F / scale;
  if (isfinite(amax)) return;
  report->value = isnan(amax) ? 1 : 0;
  report->found = 1;
}

constexpr int tile = 128;  // rows and columns of a block's tile

/// x [rows, columns] → q [rows, columns], qt [columns, rows]; columns are a multiple of 8 and rows of 16. A thread quantizes 4
/// rows of 8 columns, twice, and turns each 4x4 of them in registers; 16 rows of a column then leave shared memory at once.
template <__nv_fp8_interpretation_t format>
__global__ void __launch_bounds__(threads)
    quantize_tiles(const bf16* __restrict__ x, const float* __restrict__ amax_in, std::uint8_t* __restrict__ q,
                   std::uint8_t* __restrict__ qt, float* descale, HostReport::Words* report, std::int64_t rows,
                   std::int64_t columns) {
  // Word of 4 rows of a column: column, then group of rows. Groups are exchanged by column so that no two threads of a warp meet
  // in a bank.
  __shared__ alignas(16) std::uint32_t turned[tile * tile / 4];
  const std::int64_t tiles_across = (columns + tile - 1) / tile;
  const std::int64_t row0 = blockIdx.x / tiles_across * tile, column0 = blockIdx.x % tiles_across * tile;
  const int thread = static_cast<int>(threadIdx.x), across = thread % 16, down = thread / 16;
  const std::int64_t column = column0 + across * 8;

  uint4 loaded[2][4];
#pragma unroll
  for (int pass = 0; pass < 2; ++pass) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t row = row0 + (pass * 16 + down) * 4 + i;
      loaded[pass][i] =
          row < rows && column < columns ? *reinterpret_cast<const uint4*>(x + row * columns + column) : uint4{0, 0, 0, 0};
    }
  }
  const float amax = *amax_in, scale = scale_of<format>(amax);
  if (blockIdx.x == 0 && thread == 0) write_descale(amax, scale, descale, report);

#pragma unroll
  for (int pass = 0; pass < 2; ++pass) {
    std::uint32_t left[4], right[4];  // by row: columns 0 to 3 and 4 to 7
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 values = loaded[pass][i];
      left[i] = four_codes<format>(values.x, values.y, scale);
      right[i] = four_codes<format>(values.z, values.w, scale);
      const std::int64_t row = row0 + (pass * 16 + down) * 4 + i;
      if (row < rows && column < columns) *reinterpret_cast<uint2*>(q + row * columns + column) = uint2{left[i], right[i]};
    }
    const int group = (pass * 16 + down) ^ (across * 2);
    std::uint32_t* const to = turned + across * 8 * (tile / 4) + group;
    const auto turn = [&](const std::uint32_t(&by_row)[4], std::uint32_t* at) {
      const std::uint32_t even01 = __byte_perm(by_row[0], by_row[1], 0x5140), even23 = __byte_perm(by_row[2], by_row[3], 0x5140);
      const std::uint32_t odd01 = __byte_perm(by_row[0], by_row[1], 0x7362), odd23 = __byte_perm(by_row[2], by_row[3], 0x7362);
      at[0] = __byte_perm(even01, even23, 0x5410);
      at[tile / 4] = __byte_perm(even01, even23, 0x7632);
      at[2 * (tile / 4)] = __byte_perm(odd01, odd23, 0x5410);
      at[3 * (tile / 4)] = __byte_perm(odd01, odd23, 0x7632);
    };
    turn(left, to);
    turn(right, to + 4 * (tile / 4));
  }
  __syncthreads();

#pragma unroll
  for (int pass = 0; pass < 4; ++pass) {
    const int item = pass * threads + thread, of_tile = item / 8, sixteen = item % 8;
    const int exchanged = of_tile / 8 * 2;
    uint4 codes = reinterpret_cast<const uint4*>(turned + of_tile * (tile / 4))[sixteen ^ (exchanged / 4)];
    if ((exchanged & 2) != 0) codes = uint4{codes.z, codes.w, codes.x, codes.y};
    const std::int64_t to_column = column0 + of_tile, row = row0 + sixteen * 16;
    if (to_column < columns && row < rows) *reinterpret_cast<uint4*>(qt + to_column * rows + row) = codes;
  }
}

constexpr int small_tile = 32;

/// The same for any sizes, element by element.
template <__nv_fp8_interpretation_t format>
__global__ void __launch_bounds__(threads)
    quantize_any(const bf16* __restrict__ x, const float* __restrict__ amax_in, std::uint8_t* __restrict__ q,
                 std::uint8_t* __restrict__ qt, float* descale, HostReport::Words* report, std::int64_t rows,
                 std::int64_t columns) {
  __shared__ std::uint8_t codes[small_tile][small_tile + 1];
  const std::int64_t tiles_across = (columns + small_tile - 1) / small_tile;
  const std::int64_t row0 = blockIdx.x / tiles_across * small_tile, column0 = blockIdx.x % tiles_across * small_tile;
  const int across = static_cast<int>(threadIdx.x) % small_tile, down = static_cast<int>(threadIdx.x) / small_tile;
  const float amax = *amax_in, scale = scale_of<format>(amax);
  if (blockIdx.x == 0 && threadIdx.x == 0) write_descale(amax, scale, descale, report);
  for (int i = down; i < small_tile; i += threads / small_tile) {
    const std::int64_t row = row0 + i, column = column0 + across;
    if (row >= rows || column >= columns) continue;
    const std::uint8_t code = __nv_cvt_float_to_fp8(number(x[row * columns + column]) * scale, __NV_SATFINITE, format);
    codes[i][across] = code;
    q[row * columns + column] = code;
  }
  __syncthreads();
  for (int i = down; i < small_tile; i += threads / small_tile) {
    const std::int64_t row = row0 + across, column = column0 + i;
    if (row < rows && column < columns) qt[column * rows + row] = codes[across][i];
  }
}

template <__nv_fp8_interpretation_t format>
class Quantize final : public Kernel {
 public:
  explicit Quantize(const KernelRequest& r) : tensor_(r.attributes.string("tensor")), type_(r.outputs[0].dtype) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const bf16* x = in[0].as<bf16>();
    auto *q = out[0].as<std::uint8_t>(), *qt = out[1].as<std::uint8_t>();
    const std::int64_t rows = in[0].shape.rows(), columns = in[0].shape.last();
    const bool tiles = rows % 16 == 0 && in_packs(columns, 8, {x, q, qt});
    const int extent = tiles ? tile : small_tile;
    const unsigned grid = blocks_of(divided_up(rows, extent) * divided_up(columns, extent));
    (tiles ? quantize_tiles<format> : quantize_any<format>)<<<grid, threads, 0, stream_of(queue)>>>(
        x, in[1].as<float>(), q, qt, out[2].as<float>(), report_.on_device(), rows, columns);
    check_launch("quantize");
  }

  void check() override {
    const auto not_a_number = report_.take();
    if (!not_a_number) return;
    throw Error("tensor '" + tensor_ + "' holds " + (*not_a_number != 0 ? "NaN" : "an infinity") + ", which " +
                std::string(name_of(type_)) + " cannot represent: training has diverged, or its input has");
  }

 private:
  std::string tensor_;
  DType type_;
  HostReport report_;
};

}  // namespace

Made make_amax(const KernelRequest& r, const KernelSettings& s) {
  require_fp8(s);
  return r.inputs[0].dtype == DType::bf16 ? std::make_unique<Amax>(s) : nullptr;
}

Made make_quantize(const KernelRequest& r, const KernelSettings& s) {
  require_fp8(s);
  if (r.inputs[0].dtype != DType::bf16 || r.outputs[1].absent()) return nullptr;
  if (r.outputs[0].dtype == DType::e4m3) return std::make_unique<Quantize<__NV_E4M3>>(r);
  return std::make_unique<Quantize<__NV_E5M2>>(r);
}

}  // namespace consist::cuda
