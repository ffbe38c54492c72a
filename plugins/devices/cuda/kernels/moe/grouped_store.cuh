// Stores a warpgroup's sums of a tile: through shared memory and the copy engine, while the next tile is multiplied.
#pragma once

#include <cuda_bf16.h>

#include "plugins/devices/cuda/kernels/moe/grouped_tiles.cuh"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda::grouped {

/// Tensors lie in shared memory in boxes of 64 lines of 128 bytes, swizzled as the copy engine does.
constexpr int line_bytes = 128, box_lines = 64, box_bytes = box_lines * line_bytes;
/// Boxes of each warpgroup that may wait for being stored.
constexpr int slots = 2;

__device__ __forceinline__ std::uint32_t pair_of(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y)) << 16 | __bfloat16_as_ushort(pair.x);
}
__device__ __forceinline__ float first_of(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float second_of(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000U);
}

/// Writes sums of 64 rows and the `box`-th 128 bytes of columns.
template <int count>
__device__ __forceinline__ void write_box(const float (&sums)[count], int box, std::uint8_t* slot, const bf16* /*type*/) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane % 16;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const int chunk = pair * 2 + lane / 16;
    const float* const s = sums + (box * 8 + pair * 2) * 4;
    hopper::store_matrices(slot + row * line_bytes + (chunk ^ row % 8) * 16, pair_of(s[0], s[1]), pair_of(s[2], s[3]),
                           pair_of(s[4], s[5]), pair_of(s[6], s[7]));
  }
}
template <int count>
__device__ __forceinline__ void write_box(const float (&sums)[count], int box, std::uint8_t* slot, const float* /*type*/) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    const float* const s = sums + (box * 4 + block) * 4;
    std::uint8_t* const to = slot + row * line_bytes + ((block * 2 + lane % 4 / 2) ^ row % 8) * 16 + lane % 2 * 8;
    *reinterpret_cast<float2*>(to) = make_float2(s[0], s[1]);
    *reinterpret_cast<float2*>(to + 8 * line_bytes) = make_float2(s[2], s[3]);
  }
}

/// Stores, or adds to what is there, a warpgroup's 64 rows of a tile that begins at column x and row y of matrix z. A thread has
/// half as many sums as the tile has columns.
template <bool add, typename T, int count>
__device__ __forceinline__ void store_boxes(const float (&sums)[count], std::uint8_t* own_slots, const CUtensorMap& d, int group,
                                            int x, int y, int z) {
  constexpr int width = line_bytes / static_cast<int>(sizeof(T));
  const bool leader = threadIdx.x % 128 == 0;
#pragma unroll
  for (int box = 0; box < 2 * count / width; ++box) {
    std::uint8_t* const slot = own_slots + box % slots * box_bytes;
    if (leader) hopper::wait_for_reads<slots - 1>();
    hopper::meet(2 + group, 128);
    write_box(sums, box, slot, static_cast<const T*>(nullptr));
    hopper::publish_to_engines();
    hopper::meet(2 + group, 128);
    if (!leader) continue;
    if constexpr (add)
      hopper::add_tile(slot, d, x + box * width, y, z);
    else
      hopper::store_tile(slot, d, x + box * width, y, z);
    hopper::commit_stores();
  }
}

/// word[s] of lane t of four neighbours becomes word[t] of lane s.
__device__ __forceinline__ void transpose_words(std::uint32_t (&word)[4]) {
  const bool odd = (threadIdx.x & 1) != 0, high = (threadIdx.x & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffU, odd ? word[i] : word[i + 1], 1);
    (odd ? word[i] : word[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffU, high ? word[i] : word[i + 2], 2);
    (high ? word[i] : word[i + 2]) = got;
  }
}

/// Stores those of a warpgroup's rows that are less than `rows`, the first of which is `first` for its first lane: an expert's
/// last ones, behind which lie another's. `tile`: the tile's first element in rows of n, of which `columns` are left.
template <int count>
__device__ __forceinline__ void store_some(const float (&sums)[count], bf16* tile, int first, int rows, int columns, int n) {
  const int lane = static_cast<int>(threadIdx.x) % 32, quarter = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = first + lane / 4 + 8 * half, left = at < rows ? columns - 8 * quarter : 0;
    bf16* const row = tile + static_cast<std::int64_t>(at) * n + 8 * quarter;
#pragma unroll
    for (int blocks = 0; blocks < 2 * count / 32; ++blocks) {
      std::uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const s = sums + (4 * blocks + i) * 4 + 2 * half;
        word[i] = pair_of(s[0], s[1]);
      }
      transpose_words(word);
      if (blocks * 32 < left) *reinterpret_cast<uint4*>(row + blocks * 32) = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}

/// Clears a warpgroup's 64 rows of a tile of `width` columns; `d` and `rows` count from them, `columns` from the tile's.
template <typename T, int width = tile_n>
__device__ __forceinline__ void clear_rows(T* d, int rows, int columns, int n) {
  constexpr int elements = 16 / static_cast<int>(sizeof(T)), stores = width / elements;
  for (int i = static_cast<int>(threadIdx.x) % 128; i < box_lines * stores; i += 128) {
    const int row = i / stores, column = i % stores * elements;
    if (row < rows && column < columns) *reinterpret_cast<uint4*>(d + static_cast<std::int64_t>(row) * n + column) = uint4{};
  }
}

/// Adds to sums of 64 rows and 64 columns what lies in a box, bf16.
__device__ __forceinline__ void add_box(float* sums, const std::uint8_t* box) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    const std::uint8_t* const at = box + row * line_bytes + (block ^ row % 8) * 16 + lane % 4 * 4;
    const auto first = *reinterpret_cast<const std::uint32_t*>(at),
               second = *reinterpret_cast<const std::uint32_t*>(at + 8 * line_bytes);
    sums[4 * block] += first_of(first);
    sums[4 * block + 1] += second_of(first);
    sums[4 * block + 2] += first_of(second);
    sums[4 * block + 3] += second_of(second);
  }
}

}  // namespace consist::cuda::grouped
