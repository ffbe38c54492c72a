// quantize with scales per row or block. Blocks find their largest magnitudes where they quantize; rows and columns are longer
// than a block of threads sees, so that they are read once more for them.
#include <string>

#include "consist/float8_scaling.h"
#include "plugins/devices/cuda/kernels/fp8/amax.cuh"
#include "plugins/devices/cuda/kernels/fp8/fp8.h"
#include "plugins/devices/cuda/kernels/fp8/fp8_tile.cuh"
#include "plugins/devices/cuda/kernels/common/launch.h"

namespace consist::cuda {
namespace {

/// Largest magnitudes of a tile's rows and columns, as bits of an f32.
class TileAmax {
 public:
  struct Shared {
    alignas(16) std::uint32_t of_warp[warps][QuantizeTile::extent / 2];  // pairs of columns
  };

  /// All threads of the block call it; it meets in one barrier.
  __device__ __forceinline__ TileAmax(const QuantizeTile& tile, Shared& shared) {
    std::uint32_t pairs[4]{};
#pragma unroll
    for (int pass = 0; pass < QuantizeTile::passes; ++pass) {
#pragma unroll
      for (int i = 0; i < QuantizeTile::rows_at_once; ++i) {
        const uint4 v = tile.values[pass][i];
        const std::uint32_t words[4]{v.x, v.y, v.z, v.w};
        PairAmax of_row;
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          of_row.add(words[w]);
          pairs[w] = __vmaxu2(pairs[w], words[w] & 0x7fff7fffU);
        }
#pragma unroll
        for (int lanes = 8; lanes > 0; lanes /= 2) of_row.add(__shfl_xor_sync(0xffffffffU, of_row.largest, lanes));
        row[pass][i] = of_row.bits();
      }
    }
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int w = 0; w < 4; ++w) pairs[w] = __vmaxu2(pairs[w], __shfl_xor_sync(0xffffffffU, pairs[w], 16));
    if (threadIdx.x % 32 < 16)
      *reinterpret_cast<uint4*>(&shared.of_warp[warp][QuantizeTile::across() * 4]) =
          uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
    __syncthreads();
#pragma unroll
    for (int other = 0; other < warps; ++other) {
      const uint4 theirs = *reinterpret_cast<const uint4*>(&shared.of_warp[other][QuantizeTile::across() * 4]);
      const std::uint32_t words[4]{theirs.x, theirs.y, theirs.z, theirs.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) pairs[w] = __vmaxu2(pairs[w], words[w]);
    }
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      column[2 * w] = pairs[w] << 16;
      column[2 * w + 1] = pairs[w] & 0xffff0000U;
    }
  }

  /// Largest magnitude of the whole tile: the threads of half a warp have different columns, and together all.
  __device__ __forceinline__ std::uint32_t whole() const {
    std::uint32_t largest = 0;
#pragma unroll
    for (std::uint32_t of_column : column) largest = max(largest, of_column);
    return __reduce_max_sync(0xffffffffU, largest);
  }

  std::uint32_t row[QuantizeTile::passes][QuantizeTile::rows_at_once];  ///< of the thread's 8 rows, in its tile
  std::uint32_t column[8];                                              ///< of its 8 columns
};

/// Raises row_amax [rows] and column_amax [columns], which begin at 0.
__global__ void __launch_bounds__(threads)
    amax_of_rows_and_columns(const bf16* __restrict__ x, std::uint32_t* row_amax, std::uint32_t* column_amax, std::int64_t rows,
                             std::int64_t columns) {
  __shared__ TileAmax::Shared shared;
  const QuantizeTile tile(x, rows, columns);
  const TileAmax amax(tile, shared);
  if (QuantizeTile::across() == 0) {
#pragma unroll
    for (int pass = 0; pass < QuantizeTile::passes; ++pass) {
#pragma unroll
      for (int i = 0; i < QuantizeTile::rows_at_once; ++i) {
        if (tile.row(pass, i) < rows) atomicMax(row_amax + tile.row(pass, i), amax.row[pass][i]);
      }
    }
  }
  if (QuantizeTile::down() != 0 || tile.column() >= columns) return;
#pragma unroll
  for (int c = 0; c < 8; ++c) atomicMax(column_amax + tile.column() + c, amax.column[c]);
}

/// Where the results of quantizing x [rows, columns] go.
struct Quantized {
  std::uint8_t *q, *qt;        ///< [rows, columns], [columns, rows]
  float *descale, *descale_t;  ///< row: [rows], [columns]; block_1d: [blocks of a row, rows], [blocks of a column, columns];
                               ///< block_2d: [blocks of a column, stride], [blocks of a row, stride_t]
  std::int64_t stride, stride_t;
  HostReport::Words* report;
};

/// One scale for the tile, of both copies.
template <__nv_fp8_interpretation_t format>
__global__ void __launch_bounds__(threads)
    quantize_squares(const bf16* __restrict__ x, Quantized out, std::int64_t rows, std::int64_t columns) {
  __shared__ alignas(16) std::uint32_t turned[QuantizeTile::shared_words];
  __shared__ TileAmax::Shared shared;
  const QuantizeTile tile(x, rows, columns);
  const float amax = __uint_as_float(TileAmax(tile, shared).whole()), scale = scale_of<format>(amax);
  const std::int64_t down = tile.row0() / QuantizeTile::extent, across = tile.column0() / QuantizeTile::extent;
  if (threadIdx.x == 0) {
    write_descale(amax, scale, out.descale + down * out.stride + across, out.report);
    out.descale_t[across * out.stride_t + down] = 1.0F / scale;
  }
  // Padding of rows of scales is never multiplied; it is written so that runs repeat to the bit.
  const std::int64_t next = across + 1 + threadIdx.x, next_t = down + 1 + threadIdx.x;
  if (across + 1 == tile.tiles_across() && next < out.stride) out.descale[down * out.stride + next] = 0;
  if (down + 1 == gridDim.x / tile.tiles_across() && next_t < out.stride_t) out.descale_t[across * out.stride_t + next_t] = 0;
  tile.store_scaled<format>(scale, out.q, out.qt, turned);
}

/// One scale for each row of the tile, and for each column of the transposed copy. `of_rows` and `of_columns` are the largest
/// magnitudes of whole rows and columns; null where those of the tile count.
template <__nv_fp8_interpretation_t format, bool blocks>
__global__ void __launch_bounds__(threads)
    quantize_rows(const bf16* __restrict__ x, const std::uint32_t* __restrict__ of_rows,
                  const std::uint32_t* __restrict__ of_columns, Quantized out, std::int64_t rows, std::int64_t columns) {
  __shared__ alignas(16) std::uint32_t turned[QuantizeTile::shared_words];
  __shared__ TileAmax::Shared shared;
  const QuantizeTile tile(x, rows, columns);
  std::uint32_t row_amax[QuantizeTile::passes][QuantizeTile::rows_at_once], column_amax[8];
  if constexpr (blocks) {
    const TileAmax amax(tile, shared);
#pragma unroll
    for (int pass = 0; pass < QuantizeTile::passes; ++pass) {
#pragma unroll
      for (int i = 0; i < QuantizeTile::rows_at_once; ++i) row_amax[pass][i] = amax.row[pass][i];
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) column_amax[c] = amax.column[c];
  } else {
#pragma unroll
    for (int pass = 0; pass < QuantizeTile::passes; ++pass) {
#pragma unroll
      for (int i = 0; i < QuantizeTile::rows_at_once; ++i)
        row_amax[pass][i] = tile.row(pass, i) < rows ? of_rows[tile.row(pass, i)] : 0;
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) column_amax[c] = tile.column() < columns ? of_columns[tile.column() + c] : 0;
  }

  float column_scale[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) column_scale[c] = scale_of<format>(__uint_as_float(column_amax[c]));
  if (QuantizeTile::down() == 0 && tile.column() < columns && (blocks || tile.row0() == 0)) {
    float* const to = out.descale_t + tile.row0() / QuantizeTile::extent * columns + tile.column();
#pragma unroll
    for (int c = 0; c < 8; ++c) write_descale(__uint_as_float(column_amax[c]), column_scale[c], to + c, out.report);
  }
  const float4 scales[2]{{column_scale[0], column_scale[1], column_scale[2], column_scale[3]},
                         {column_scale[4], column_scale[5], column_scale[6], column_scale[7]}};
  float* const descale = out.descale + tile.column0() / QuantizeTile::extent * rows;
  const bool writes = QuantizeTile::across() == 0 && (blocks || tile.column0() == 0);
#pragma unroll
  for (int pass = 0; pass < QuantizeTile::passes; ++pass) {
    std::uint32_t left[4], right[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 values = tile.values[pass][i];
      const float scale = scale_of<format>(__uint_as_float(row_amax[pass][i]));
      if (writes && tile.row(pass, i) < rows)
        write_descale(__uint_as_float(row_amax[pass][i]), scale, descale + tile.row(pass, i), out.report);
      tile.store_row(out.q, pass, i, four_codes<format>(values.x, values.y, scale),
                     four_codes<format>(values.z, values.w, scale));
      left[i] = four_codes<format>(values.x, values.y, scales[0]);
      right[i] = four_codes<format>(values.z, values.w, scales[1]);
    }
    QuantizeTile::turn(turned, pass, left, right);
  }
  __syncthreads();
  tile.store_turned(turned, out.qt);
}

template <__nv_fp8_interpretation_t format>
class QuantizeScaled final : public Kernel {
 public:
  QuantizeScaled(const KernelRequest& r, Scaling scaling)
      : scaling_(scaling), rows_(r.inputs[0].shape.rows()), columns_(r.inputs[0].shape.last()), failure_(r) {}

  std::int64_t workspace_bytes() const override { return scaling_ == Scaling::row ? (rows_ + columns_) * 4 : 0; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const bf16* x = in[0].as<bf16>();
    const Quantized to{.q = out[0].as<std::uint8_t>(),
                       .qt = out[1].as<std::uint8_t>(),
                       .descale = out[2].as<float>(),
                       .descale_t = out[3].as<float>(),
                       .stride = square_stride(columns_),
                       .stride_t = square_stride(rows_),
                       .report = failure_.on_device()};
    if (!in_packs(columns_, 8, {x, to.q, to.qt}))
      throw ProgramError("quantize by rows or blocks: a tensor is not aligned at 16 bytes");
    const cudaStream_t stream = stream_of(queue);
    const unsigned grid = blocks_of(divided_up(rows_, QuantizeTile::extent) * divided_up(columns_, QuantizeTile::extent));
    auto* const of_rows = static_cast<std::uint32_t*>(workspace);
    std::uint32_t* const of_columns = of_rows + rows_;
    if (scaling_ == Scaling::row) {
      cuda::check(cudaMemsetAsync(workspace, 0, static_cast<std::size_t>(workspace_bytes()), stream), "cudaMemsetAsync");
      amax_of_rows_and_columns<<<grid, threads, 0, stream>>>(x, of_rows, of_columns, rows_, columns_);
      quantize_rows<format, false><<<grid, threads, 0, stream>>>(x, of_rows, of_columns, to, rows_, columns_);
    } else if (scaling_ == Scaling::block_1d) {
      quantize_rows<format, true><<<grid, threads, 0, stream>>>(x, nullptr, nullptr, to, rows_, columns_);
    } else {
      quantize_squares<format><<<grid, threads, 0, stream>>>(x, to, rows_, columns_);
    }
    check_launch("quantize");
  }

  void check() override { failure_.check(); }

 private:
  Scaling scaling_;
  std::int64_t rows_, columns_;
  NotFinite failure_;
};

}  // namespace

Made make_quantize_scaled(const KernelRequest& r, Scaling scaling) {
  constexpr std::int64_t multiple = 16;
  const std::int64_t rows = r.inputs[0].shape.rows(), columns = r.inputs[0].shape.last();
  if (rows % multiple != 0 || columns % multiple != 0) {
    throw UnavailableError("tensor '" + r.attributes.string("tensor") + "' has " + std::to_string(rows) + " rows of " +
                           std::to_string(columns) + " here, and scales per row or block (--fp8.scaling) need multiples of " +
                           std::to_string(multiple) + " of both: choose --batch and --sequence accordingly");
  }
  if (r.outputs[0].dtype == DType::e4m3) return std::make_unique<QuantizeScaled<__NV_E4M3>>(r, scaling);
  return std::make_unique<QuantizeScaled<__NV_E5M2>>(r, scaling);
}

}  // namespace consist::cuda
