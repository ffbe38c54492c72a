// A tile of a bf16 matrix in the registers of a block: read once, written as 8-bit floats in both orders.
#pragma once

#include "plugins/devices/cuda/kernels/fp8/float8.cuh"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {

/// Extent of the tiles by which a block transposes where packs cannot be.
constexpr int small_tile = 32;

/// 128 rows and columns. Of a block of 256 threads each holds 8 neighbours of 8 rows: 4 rows from 4·down, and 4 from 64 + 4·down.
/// Rows are a multiple of 16 and columns of 8; what lies beyond the matrix reads as 0.
class QuantizeTile {
 public:
  static constexpr int extent = 128;
  static constexpr int passes = 2, rows_at_once = 4;

  /// The block's place; its values are what the caller makes them.
  __device__ __forceinline__ QuantizeTile(std::int64_t rows, std::int64_t columns)
      : rows_(rows),
        columns_(columns),
        row0_(blockIdx.x / tiles_across() * extent),
        column0_(blockIdx.x % tiles_across() * extent) {}

  __device__ __forceinline__ QuantizeTile(const bf16* __restrict__ x, std::int64_t rows, std::int64_t columns)
      : QuantizeTile(rows, columns) {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i) {
        const std::int64_t at = row(pass, i);
        values[pass][i] =
            at < rows_ && column() < columns_ ? *reinterpret_cast<const uint4*>(x + at * columns_ + column()) : uint4{0, 0, 0, 0};
      }
    }
  }

  static __device__ __forceinline__ int across() {
    return static_cast<int>(threadIdx.x) % 16;
  }
  static __device__ __forceinline__ int down() {
    return static_cast<int>(threadIdx.x) / 16;
  }
  /// In the tile.
  static __device__ __forceinline__ int tile_row(int pass, int i) {
    return (pass * 16 + down()) * rows_at_once + i;
  }
  /// In the matrix; column() is the first of the thread's 8.
  __device__ __forceinline__ std::int64_t row(int pass, int i) const {
    return row0_ + tile_row(pass, i);
  }
  __device__ __forceinline__ std::int64_t column() const {
    return column0_ + across() * 8;
  }
  __device__ __forceinline__ std::int64_t tiles_across() const {
    return (columns_ + extent - 1) / extent;
  }
  __device__ __forceinline__ std::int64_t row0() const {
    return row0_;
  }
  __device__ __forceinline__ std::int64_t column0() const {
    return column0_;
  }

  /// The codes that are there already, as turn() takes them: 4 rows of pass `pass`, columns 0 to 3 and 4 to 7 of the thread.
  __device__ __forceinline__ void load_codes(const std::uint8_t* __restrict__ q, int pass, std::uint32_t (&left)[4],
                                             std::uint32_t (&right)[4]) const {
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      const std::int64_t at = row(pass, i);
      const uint2 codes =
          at < rows_ && column() < columns_ ? *reinterpret_cast<const uint2*>(q + at * columns_ + column()) : uint2{0, 0};
      left[i] = codes.x;
      right[i] = codes.y;
    }
  }

  __device__ __forceinline__ void store_row(std::uint8_t* q, int pass, int i, std::uint32_t left, std::uint32_t right) const {
    const std::int64_t at = row(pass, i);
    if (at < rows_ && column() < columns_) *reinterpret_cast<uint2*>(q + at * columns_ + column()) = uint2{left, right};
  }

  /// Codes of 4 rows by row, columns 0 to 3 and 4 to 7, into the block's shared words: each 4x4 of them is turned in registers.
  static __device__ __forceinline__ void turn(std::uint32_t* words, int pass, const std::uint32_t (&left)[4],
                                              const std::uint32_t (&right)[4]) {
    const int group = (pass * 16 + down()) ^ (across() * 2);
    std::uint32_t* const to = words + across() * 8 * (extent / 4) + group;
    turn_four(left, to);
    turn_four(right, to + 4 * (extent / 4));
  }
  /// Behind a barrier: 16 rows of a column leave shared memory at once. qt is [columns, rows].
  __device__ __forceinline__ void store_turned(const std::uint32_t* words, std::uint8_t* qt) const {
#pragma unroll
    for (int pass = 0; pass < 4; ++pass) {
      const int item = pass * threads + static_cast<int>(threadIdx.x), of_tile = item / 8, sixteen = item % 8;
      const int exchanged = of_tile / 8 * 2;
      uint4 codes = reinterpret_cast<const uint4*>(words + of_tile * (extent / 4))[sixteen ^ (exchanged / 4)];
      if ((exchanged & 2) != 0) codes = uint4{codes.z, codes.w, codes.x, codes.y};
      const std::int64_t to_column = column0_ + of_tile, to_row = row0_ + sixteen * 16;
      if (to_column < columns_ && to_row < rows_) *reinterpret_cast<uint4*>(qt + to_column * rows_ + to_row) = codes;
    }
  }
  /// All of the block's values in both orders, by one scale; with qt null in theirs alone. `words` is the block's shared memory;
  /// called by all of its threads.
  template <__nv_fp8_interpretation_t format>
  __device__ __forceinline__ void store_scaled(float scale, std::uint8_t* q, std::uint8_t* qt, std::uint32_t* words) const {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      std::uint32_t left[rows_at_once], right[rows_at_once];
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i) {
        const uint4 eight = values[pass][i];
        left[i] = four_codes<format>(eight.x, eight.y, scale);
        right[i] = four_codes<format>(eight.z, eight.w, scale);
        store_row(q, pass, i, left[i], right[i]);
      }
      if (qt != nullptr) turn(words, pass, left, right);
    }
    if (qt == nullptr) return;
    __syncthreads();
    store_turned(words, qt);
  }
  /// Word of 4 rows of a column: column, then group of rows. Groups are exchanged by column so that no two threads of a warp meet
  /// in a bank.
  static constexpr int shared_words = extent * extent / 4;

  uint4 values[passes][rows_at_once];

 private:
  static __device__ __forceinline__ void turn_four(const std::uint32_t (&by_row)[4], std::uint32_t* at) {
    const std::uint32_t even01 = __byte_perm(by_row[0], by_row[1], 0x5140), even23 = __byte_perm(by_row[2], by_row[3], 0x5140);
    const std::uint32_t odd01 = __byte_perm(by_row[0], by_row[1], 0x7362), odd23 = __byte_perm(by_row[2], by_row[3], 0x7362);
    at[0] = __byte_perm(even01, even23, 0x5410);
    at[extent / 4] = __byte_perm(even01, even23, 0x7632);
    at[2 * (extent / 4)] = __byte_perm(odd01, odd23, 0x5410);
    at[3 * (extent / 4)] = __byte_perm(odd01, odd23, 0x7632);
  }

  std::int64_t rows_, columns_, row0_, column0_;
};

}  // namespace consist::cuda
