// Tiles of attention on the tensor cores, shared by forward and backward: bf16 operands, sums in f32, by instructions that every
// GPU since A100 has (mma.sync). For what cuDNN has no kernel for: documents, windows whose diagonal does not end at the last
// key, soft-caps, sizes of heads that are no multiple of 8. As on the ordinary units (attention_tiles.cuh) every sum has a fixed order.
//
// A block is four warps and has tiles of 64 tokens of one head, each a row of D elements in shared memory; of its own 64 rows a
// warp has 16. The 16 bytes at place c of row r lie at place c ^ (r % 8), so that eight neighbouring rows of one column fall into
// different banks. While a tile is worked on, the next one is on its way.
//
// In a result [16, n] of a product, lane l has rows l/4 and l/4 + 8 and of every eight columns 2·(l%4) and the next one: so
// results of one product, rounded, are operands of the next without leaving registers.
#pragma once

#include <type_traits>

#include "plugins/devices/cuda/kernels/attention/attention_extents.cuh"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda::mma {

inline constexpr int mma_threads = 128;
inline constexpr int tile = 64;      // queries and keys of a block's tile
inline constexpr int own_rows = 16;  // of a warp
inline constexpr float log2_e = 1.4426950408889634F, ln_2 = 0.6931471805599453F;

/// A tile in shared memory.
template <int D>
struct Tile {
  static constexpr int bytes = tile * D * 2;
  std::uint32_t address;

  __device__ std::uint32_t at(int row, int place) const { return address + (row * (D / 8) + (place ^ (row & 7))) * 16; }
};

/// The left operand of a product, 16 rows by 16 elements of the sum.
struct Left {
  std::uint32_t word[4];
};

__device__ __forceinline__ void load_matrices(std::uint32_t address, std::uint32_t (&word)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_transposed(std::uint32_t address, std::uint32_t (&word)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(address)
               : "memory");
}
/// sum [16, 8] += left · two words of a right operand [16, 8]
__device__ __forceinline__ void multiply_add(float (&sum)[4], const Left& left, std::uint32_t first, std::uint32_t second) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left.word[0]), "r"(left.word[1]), "r"(left.word[2]), "r"(left.word[3]), "r"(first), "r"(second));
}

/// Rows [first_row, first_row + 16) of a tile, elements [16·step, 16·step + 16).
template <int D>
__device__ __forceinline__ Left rows_of(const Tile<D>& from, int first_row, int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Left left;
  load_matrices(from.at(first_row + lane % 16, 2 * step + lane / 16), left.word);
  return left;
}

/// scores [16, 64] += left rows · the rows of `right`, over the elements [16·step, 16·step + 16) of both
template <int D>
__device__ __forceinline__ void add_product_of_rows(const Left& left, const Tile<D>& right, int step, float (&scores)[8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    std::uint32_t word[4];
    load_matrices(right.at(16 * n + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2), word);
    multiply_add(scores[2 * n], left, word[0], word[1]);
    multiply_add(scores[2 * n + 1], left, word[2], word[3]);
  }
}

__device__ __forceinline__ std::uint32_t pair(float first, float second) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(both.y)) << 16 | __bfloat16_as_ushort(both.x);
}

/// result [16, D] += weights [16, 64], rounded to bf16, · the rows of `values`
template <int D>
__device__ __forceinline__ void add_weighted_rows(const float (&weights)[8][4], const Tile<D>& values,
                                                  float (&result)[D / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float(&even)[4] = weights[2 * k], (&odd)[4] = weights[2 * k + 1];
    const Left left{{pair(even[0], even[1]), pair(even[2], even[3]), pair(odd[0], odd[1]), pair(odd[2], odd[3])}};
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      std::uint32_t word[4];
      load_transposed(values.at(16 * k + lane % 16, 2 * n + lane / 16), word);
      multiply_add(result[2 * n], left, word[0], word[1]);
      multiply_add(result[2 * n + 1], left, word[2], word[3]);
    }
  }
}

/// Begins to copy 16 (or 4) bytes; 0 are written where they are not `there`.
__device__ __forceinline__ void copy_16(std::uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_4(std::uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}
/// Waits for all copies that this thread began; a barrier must follow before others' are read.
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// One head of a tensor of tokens.
struct Head {
  const bf16* first;  ///< of token 0
  std::int64_t row;   ///< elements from token to token
  int count, dim;     ///< tokens; elements of a head
  bool in_packs;      ///< every 8 elements start at 16 bytes

  __device__ Head(const bf16* __restrict__ tensor, const Extents& e, const Tokens& tokens, int b, int head, std::int64_t row)
      : first(tensor + e.at(tokens, b, 0, head, row)),
        row(row),
        count(tokens.count),
        dim(e.dim),
        in_packs((reinterpret_cast<std::uintptr_t>(tensor) | static_cast<std::uintptr_t>(row * 2) |
                  static_cast<std::uintptr_t>(e.dim * 2)) %
                     16 ==
                 0) {}
};

/// Begins to copy tokens [start, start + 64); what lies beyond the sequence or the head is 0.
template <int D>
__device__ void begin_to_load(const Head& head, int start, const Tile<D>& to) {
#pragma unroll 4
  for (int i = threadIdx.x; i < tile * D / 8; i += mma_threads) {
    const int row = i / (D / 8), place = i % (D / 8);
    const bool there = start + row < head.count && place * 8 < head.dim;
    const bf16* from = head.first + (there ? (start + row) * head.row + place * 8 : 0);
    if (head.in_packs) {
      copy_16(to.at(row, place), from, there);
    } else {
      std::uint32_t word[4];
      for (int k = 0; k < 4; ++k) {
        const bool even = there && place * 8 + 2 * k < head.dim, odd = there && place * 8 + 2 * k + 1 < head.dim;
        word[k] = pair(even ? number(from[2 * k]) : 0.0F, odd ? number(from[2 * k + 1]) : 0.0F);
      }
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to.at(row, place)), "r"(word[0]), "r"(word[1]), "r"(word[2]),
                   "r"(word[3])
                   : "memory");
    }
  }
}

/// Rows `first` + l/4 (+ 8) of one head: factor[0] (factor[1]) · result, rounded.
template <int D>
__device__ void store_rows(const float (&result)[D / 8][4], const float (&factor)[2], bf16* tensor, const Extents& e,
                           const Tokens& tokens, int b, int head, std::int64_t token_row, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + lane / 4 + 8 * half;
    if (row >= tokens.count) continue;
    bf16* to = tensor + e.at(tokens, b, row, head, token_row);
    const bool in_pairs = reinterpret_cast<std::uintptr_t>(to) % 4 == 0 && e.dim % 2 == 0;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const int column = 8 * n + lane % 4 * 2;
      const float even = result[n][2 * half] * factor[half], odd = result[n][2 * half + 1] * factor[half];
      if (in_pairs) {
        if (column < e.dim) *reinterpret_cast<std::uint32_t*>(to + column) = pair(even, odd);
      } else {
        if (column < e.dim) to[column] = rounded<bf16>(even);
        if (column + 1 < e.dim) to[column + 1] = rounded<bf16>(odd);
      }
    }
  }
}

/// 2^x; 0 for −∞.
__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The largest (least) value of a warp.
__device__ __forceinline__ int most_of_warp(int value) {
  return __reduce_max_sync(0xffffffffU, value);
}
__device__ __forceinline__ int least_of_warp(int value) {
  return __reduce_min_sync(0xffffffffU, value);
}

/// K<D, Capped> for the size of heads; the cap costs registers and time.
template <template <int, bool> class K>
Made for_shape(const AttentionShape& shape) {
  const auto of_dim = [&]<int D>(std::integral_constant<int, D>) -> Made {
    if (shape.scores.cap > 0) return std::make_unique<K<D, true>>(shape);
    return std::make_unique<K<D, false>>(shape);
  };
  return shape.dim <= 64 ? of_dim(std::integral_constant<int, 64>{}) : of_dim(std::integral_constant<int, 128>{});
}

inline dim3 grid_of(std::int64_t tokens, std::int64_t heads, std::int64_t batch) {
  return {blocks_of(divided_up(tokens, tile)), static_cast<unsigned>(heads), static_cast<unsigned>(batch)};
}

}  // namespace consist::cuda::mma
