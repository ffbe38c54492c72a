// Quantizing before gathering: rank_values, quantize_part, and transpose of what was gathered.
#include "plugins/devices/cuda/kernels/fp8/fp8.h"
#include "plugins/devices/cuda/kernels/fp8/fp8_tile.cuh"
#include "plugins/devices/cuda/kernels/common/launch.h"

namespace consist::cuda {
namespace {

/// Addresses of scalars, as a kernel parameter: nothing has to be copied to the device before, and a captured graph keeps them.
struct Scalars {
  static constexpr int capacity = 500;
  const float* from[capacity];
};

__global__ void __launch_bounds__(threads) line_up(const __grid_constant__ Scalars scalars, float* __restrict__ to, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) to[i] = *scalars.from[i];
}

class RankValues final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    for (std::size_t first = 0; first < in.size(); first += Scalars::capacity) {
      Scalars scalars{};
      const auto count = static_cast<int>(std::min<std::size_t>(Scalars::capacity, in.size() - first));
      for (int i = 0; i < count; ++i) scalars.from[i] = in[first + static_cast<std::size_t>(i)].as<float>();
      line_up<<<1, threads, 0, stream_of(queue)>>>(scalars, out[0].as<float>() + first, count);
      check_launch("rank_values");
    }
  }
};

/// Magnitudes as bits of a float: infinity is above all numbers and NaN above that.
__device__ __forceinline__ float largest_of(const float* amaxes, int ranks, int columns, int column) {
  std::uint32_t largest = 0;
  for (int rank = 0; rank < ranks; ++rank) largest = max(largest, __float_as_uint(amaxes[rank * columns + column]) & 0x7fffffffU);
  return __uint_as_float(largest);
}

/// 8 elements of a thread, or one.
template <__nv_fp8_interpretation_t format, bool packed>
__global__ void __launch_bounds__(threads)
    quantize_elements(const bf16* __restrict__ x, const float* __restrict__ amaxes, std::uint8_t* __restrict__ q, float* descale,
                      HostReport::Words* report, std::int64_t count, int ranks, int columns, int column) {
  const float amax = largest_of(amaxes, ranks, columns, column), scale = scale_of<format>(amax);
  if (blockIdx.x == 0 && threadIdx.x == 0) write_descale(amax, scale, descale, report);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if constexpr (packed) {
    if (i >= count / 8) return;
    const uint4 values = reinterpret_cast<const uint4*>(x)[i];
    reinterpret_cast<uint2*>(q)[i] =
        uint2{four_codes<format>(values.x, values.y, scale), four_codes<format>(values.z, values.w, scale)};
  } else if (i < count) {
    q[i] = __nv_cvt_float_to_fp8(number(x[i]) * scale, __NV_SATFINITE, format);
  }
}

template <__nv_fp8_interpretation_t format>
class QuantizePart final : public Kernel {
 public:
  explicit QuantizePart(const KernelRequest& r) : column_(static_cast<int>(r.attributes.integer("column"))), failure_(r) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const bf16* x = in[0].as<bf16>();
    auto* q = out[0].as<std::uint8_t>();
    const std::int64_t count = in[0].shape.elements();
    const bool packed = in_packs(count, 8, {x, q});
    const int ranks = static_cast<int>(in[1].shape[0]), columns = static_cast<int>(in[1].shape[1]);
    // A rank without a part needs the scale nevertheless.
    const unsigned grid = blocks_of(std::max<std::int64_t>(divided_up(packed ? count / 8 : count, threads), 1));
    (packed ? quantize_elements<format, true> : quantize_elements<format, false>)<<<grid, threads, 0, stream_of(queue)>>>(
        x, in[1].as<float>(), q, out[1].as<float>(), failure_.on_device(), count, ranks, columns, column_);
    check_launch("quantize_part");
  }

  void check() override { failure_.check(); }

 private:
  int column_;
  NotFinite failure_;
};

/// q [rows, columns] → qt [columns, rows]; columns are a multiple of 8 and rows of 16.
__global__ void __launch_bounds__(threads)
    transpose_tiles(const std::uint8_t* __restrict__ q, std::uint8_t* __restrict__ qt, std::int64_t rows, std::int64_t columns) {
  __shared__ alignas(16) std::uint32_t turned[QuantizeTile::shared_words];
  const QuantizeTile tile(rows, columns);
  std::uint32_t left[QuantizeTile::passes][4], right[QuantizeTile::passes][4];
#pragma unroll
  for (int pass = 0; pass < QuantizeTile::passes; ++pass) tile.load_codes(q, pass, left[pass], right[pass]);
#pragma unroll
  for (int pass = 0; pass < QuantizeTile::passes; ++pass) QuantizeTile::turn(turned, pass, left[pass], right[pass]);
  __syncthreads();
  tile.store_turned(turned, qt);
}

/// The same for any sizes, element by element.
__global__ void __launch_bounds__(threads)
    transpose_any(const std::uint8_t* __restrict__ q, std::uint8_t* __restrict__ qt, std::int64_t rows, std::int64_t columns) {
  __shared__ std::uint8_t codes[small_tile][small_tile + 1];
  const std::int64_t tiles_across = (columns + small_tile - 1) / small_tile;
  const std::int64_t row0 = blockIdx.x / tiles_across * small_tile, column0 = blockIdx.x % tiles_across * small_tile;
  const int across = static_cast<int>(threadIdx.x) % small_tile, down = static_cast<int>(threadIdx.x) / small_tile;
  for (int i = down; i < small_tile; i += threads / small_tile) {
    if (row0 + i < rows && column0 + across < columns) codes[i][across] = q[(row0 + i) * columns + column0 + across];
  }
  __syncthreads();
  for (int i = down; i < small_tile; i += threads / small_tile) {
    if (row0 + across < rows && column0 + i < columns) qt[(column0 + i) * rows + row0 + across] = codes[across][i];
  }
}

class Transpose final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const auto* q = in[0].as<std::uint8_t>();
    auto* qt = out[0].as<std::uint8_t>();
    const std::int64_t rows = in[0].shape.rows(), columns = in[0].shape.last();
    if (rows * columns == 0) return;
    const bool tiles = rows % 16 == 0 && in_packs(columns, 8, {q, qt});
    const int extent = tiles ? QuantizeTile::extent : small_tile;
    const unsigned grid = blocks_of(divided_up(rows, extent) * divided_up(columns, extent));
    (tiles ? transpose_tiles : transpose_any)<<<grid, threads, 0, stream_of(queue)>>>(q, qt, rows, columns);
    check_launch("transpose");
  }
};

Made make_rank_values(const KernelRequest&, const KernelSettings&) {
  return std::make_unique<RankValues>();
}

Made make_quantize_part(const KernelRequest& r, const KernelSettings& s) {
  require_fp8(s);
  if (r.inputs[0].dtype != DType::bf16) return nullptr;
  if (r.outputs[0].dtype == DType::e4m3) return std::make_unique<QuantizePart<__NV_E4M3>>(r);
  if (r.outputs[0].dtype == DType::e5m2) return std::make_unique<QuantizePart<__NV_E5M2>>(r);
  return nullptr;
}

Made make_transpose(const KernelRequest& r, const KernelSettings&) {
  return size_of(r.inputs[0].dtype) == 1 ? std::make_unique<Transpose>() : nullptr;
}

}  // namespace

CONSIST_KERNEL(rank_values, make_rank_values);
CONSIST_KERNEL(quantize_part, make_quantize_part);
CONSIST_KERNEL(transpose, make_transpose);

}  // namespace consist::cuda
