// amax and quantize. Quantizing reads a tensor once and writes it in both orders.
#include <string>

#include "plugins/devices/cuda/kernels/fp8/amax.cuh"
#include "plugins/devices/cuda/kernels/fp8/fp8.h"
#include "plugins/devices/cuda/kernels/fp8/fp8_tile.cuh"
#include "plugins/devices/cuda/kernels/common/launch.h"

namespace consist::cuda {
namespace {

constexpr int amax_unroll = 4;

template <bool packed>
__global__ void __launch_bounds__(threads) amax_of(const bf16* __restrict__ x, std::int64_t count, float* amax) {
  PairAmax found;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * (threads * amax_unroll);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * (threads * amax_unroll) + threadIdx.x;
  if constexpr (packed) {
    const uint4* packs = reinterpret_cast<const uint4*>(x);
    for (std::int64_t first = begin; first < count / 8; first += stride) {
      uint4 loaded[amax_unroll];
#pragma unroll
      for (int u = 0; u < amax_unroll; ++u)
        loaded[u] = first + u * threads < count / 8 ? packs[first + u * threads] : uint4{0, 0, 0, 0};
#pragma unroll
      for (int u = 0; u < amax_unroll; ++u) {
        found.add(loaded[u].x);
        found.add(loaded[u].y);
        found.add(loaded[u].z);
        found.add(loaded[u].w);
      }
    }
  } else {
    for (std::int64_t first = begin; first < count; first += stride) {
#pragma unroll
      for (int u = 0; u < amax_unroll; ++u) {
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
    const std::int64_t blocks = divided_up(packed ? count / 8 : count, threads * amax_unroll);
    const unsigned grid = blocks_of(std::min<std::int64_t>(blocks, blocks_at_most_));
    clear_amax(out[0].as<float>(), stream_of(queue));
    if (grid == 0) return;
    (packed ? amax_of<true> : amax_of<false>)<<<grid, threads, 0, stream_of(queue)>>>(x, count, out[0].as<float>());
    check_launch("amax");
  }

 private:
  int blocks_at_most_;
};

/// Delayed scaling by the largest magnitude of the steps before, in whose place `own` counts where there was none. Quantizing
/// also raises `own`, which begins at 0, to the tensor's.
struct Delayed {
  float* own = nullptr;  ///< null: the tensor's own largest magnitude is given

  __device__ __forceinline__ float amax(const float* given) const { return own != nullptr && *given == 0.0F ? *own : *given; }
  /// By all threads of a block, with the largest magnitude of their elements.
  __device__ __forceinline__ void raise(std::uint32_t mine, HostReport::Words* report) const {
    report_amax(__uint_as_float(mine), report);
    raise_amax(mine, own);
  }
};

/// Where there was no step before: a tensor's own largest magnitude comes first, as without delay.
__global__ void __launch_bounds__(threads)
    amax_of_first_step(const bf16* __restrict__ x, std::int64_t count, const float* __restrict__ known, float* own) {
  if (*known != 0.0F) return;
  PairAmax found;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride)
    found.add(__bfloat16_as_ushort(x[i]));
  raise_amax(found.bits(), own);
}

/// x [rows, columns] → q [rows, columns], qt? [columns, rows]; columns are a multiple of 8 and rows of 16.
template <__nv_fp8_interpretation_t format, bool is_delayed>
__global__ void __launch_bounds__(threads)
    quantize_tiles(const bf16* __restrict__ x, const float* __restrict__ amax_in, Delayed delayed, std::uint8_t* __restrict__ q,
                   std::uint8_t* __restrict__ qt, float* descale, HostReport::Words* report, std::int64_t rows,
                   std::int64_t columns) {
  __shared__ alignas(16) std::uint32_t turned[QuantizeTile::shared_words];
  const QuantizeTile tile(x, rows, columns);
  const float amax = delayed.amax(amax_in), scale = scale_of<format>(amax);
  if (blockIdx.x == 0 && threadIdx.x == 0) write_descale(amax, scale, descale, report);
  tile.store_scaled<format>(scale, q, qt, turned);
  if constexpr (is_delayed) {
    PairAmax found;
#pragma unroll
    for (const auto& of_pass : tile.values) {
#pragma unroll
      for (const uint4& words : of_pass) {
        found.add(words.x);
        found.add(words.y);
        found.add(words.z);
        found.add(words.w);
      }
    }
    delayed.raise(found.bits(), report);
  }
}

/// The same for any sizes, element by element.
template <__nv_fp8_interpretation_t format, bool is_delayed>
__global__ void __launch_bounds__(threads)
    quantize_any(const bf16* __restrict__ x, const float* __restrict__ amax_in, Delayed delayed, std::uint8_t* __restrict__ q,
                 std::uint8_t* __restrict__ qt, float* descale, HostReport::Words* report, std::int64_t rows,
                 std::int64_t columns) {
  __shared__ std::uint8_t codes[small_tile][small_tile + 1];
  const std::int64_t tiles_across = (columns + small_tile - 1) / small_tile;
  const std::int64_t row0 = blockIdx.x / tiles_across * small_tile, column0 = blockIdx.x % tiles_across * small_tile;
  const int across = static_cast<int>(threadIdx.x) % small_tile, down = static_cast<int>(threadIdx.x) / small_tile;
  const float amax = delayed.amax(amax_in), scale = scale_of<format>(amax);
  if (blockIdx.x == 0 && threadIdx.x == 0) write_descale(amax, scale, descale, report);
  PairAmax found;
  for (int i = down; i < small_tile; i += threads / small_tile) {
    const std::int64_t row = row0 + i, column = column0 + across;
    if (row >= rows || column >= columns) continue;
    if constexpr (is_delayed) found.add(__bfloat16_as_ushort(x[row * columns + column]));
    const std::uint8_t code = __nv_cvt_float_to_fp8(number(x[row * columns + column]) * scale, __NV_SATFINITE, format);
    codes[i][across] = code;
    q[row * columns + column] = code;
  }
  __syncthreads();
  for (int i = down; qt != nullptr && i < small_tile; i += threads / small_tile) {
    const std::int64_t row = row0 + across, column = column0 + i;
    if (row < rows && column < columns) qt[column * rows + row] = codes[across][i];
  }
  if constexpr (is_delayed) delayed.raise(found.bits(), report);
}

template <__nv_fp8_interpretation_t format, bool is_delayed>
class Quantize final : public Kernel {
 public:
  Quantize(const KernelRequest& r, const KernelSettings& s) : blocks_at_most_(s.multiprocessors * 8), failure_(r) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const bf16* x = in[0].as<bf16>();
    auto *q = out[0].as<std::uint8_t>(), *qt = out[1].as<std::uint8_t>();
    const std::int64_t rows = in[0].shape.rows(), columns = in[0].shape.last();
    const cudaStream_t stream = stream_of(queue);
    Delayed delayed;
    if constexpr (is_delayed) {
      delayed.own = out[3].as<float>();
      clear_amax(delayed.own, stream);
      const std::int64_t blocks = divided_up(rows * columns, threads);
      amax_of_first_step<<<blocks_of(std::min<std::int64_t>(blocks, blocks_at_most_)), threads, 0, stream>>>(
          x, rows * columns, in[1].as<float>(), delayed.own);
      check_launch("amax of the first step");
    }
    const bool tiles = (qt == nullptr || rows % 16 == 0) && in_packs(columns, 8, {x, q, qt});
    const int extent = tiles ? QuantizeTile::extent : small_tile;
    const unsigned grid = blocks_of(divided_up(rows, extent) * divided_up(columns, extent));
    (tiles ? quantize_tiles<format, is_delayed> : quantize_any<format, is_delayed>)<<<grid, threads, 0, stream>>>(
        x, in[1].as<float>(), delayed, q, qt, out[2].as<float>(), failure_.on_device(), rows, columns);
    check_launch("quantize");
  }
  void check() override { failure_.check(); }

 private:
  int blocks_at_most_;
  NotFinite failure_;
};

template <bool is_delayed>
Made quantize_as(const KernelRequest& r, const KernelSettings& s) {
  if (r.outputs[0].dtype == DType::e4m3) return std::make_unique<Quantize<__NV_E4M3, is_delayed>>(r, s);
  return std::make_unique<Quantize<__NV_E5M2, is_delayed>>(r, s);
}

Made make_amax(const KernelRequest& r, const KernelSettings& s) {
  require_fp8(s);
  return r.inputs[0].dtype == DType::bf16 ? std::make_unique<Amax>(s) : nullptr;
}

Made make_quantize(const KernelRequest& r, const KernelSettings& s) {
  require_fp8(s);
  if (r.inputs[0].dtype != DType::bf16) return nullptr;
  const Scaling scaling = scaling_of(r.attributes);
  if (has_transposed_scales(scaling)) return r.outputs[1].absent() ? nullptr : make_quantize_scaled(r, scaling);
  return scaling == Scaling::delayed ? quantize_as<true>(r, s) : quantize_as<false>(r, s);
}

}  // namespace

CONSIST_KERNEL(amax, make_amax);
CONSIST_KERNEL(quantize, make_quantize);

}  // namespace consist::cuda
