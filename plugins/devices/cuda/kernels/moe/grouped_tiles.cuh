// Tiles of products of experts' rows, as blocks of a persistent grid find them: from the counts, in pairs, in the order in which
// clusters of two blocks draw them from a counter, so that none waits for another whose tiles take longer.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "plugins/devices/cuda/kernels/moe/grouped.h"
#include "plugins/devices/cuda/kernels/moe/hopper.cuh"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda::grouped {

/// A tile of the result is [tile_m, tile_n] and is added up over blocks of tile_k, in bf16. Those of 8-bit floats have
/// another width and depth.
constexpr int tile_m = 128, tile_n = 256, tile_k = 64;

/// GroupedSizes as a GPU counts: all of them fit.
struct Sizes {
  int experts, rows, m, n, k;
};

__host__ __device__ constexpr int parts_in(int whole, int part) {
  return (whole + part - 1) / part;
}

/// Where an expert begins. Behind the last one lies padding, and behind that the end.
struct Begin {
  int row, pair;  ///< pair: the number of its first pair of tiles
};

struct Tile {
  int expert, row, rows;  ///< row: of all rows; rows: from there to the expert's end, at most tile_m but for weights
  int m, n;               ///< m: of weights
  int k_blocks;           ///< 0: nothing is added up
  bool same_rows;         ///< the pair lies side by side in the same rows; else one above the other in the same columns
};

/// Pairs of tiles of an expert with so many rows.
template <GroupedProduct product, int width = tile_n>
__device__ int pairs_of(int rows, const Sizes& sizes) {
  const int across = parts_in(sizes.n, width);
  if (product == GroupedProduct::weight_grad) return parts_in(sizes.m, 2 * tile_m) * across;
  const int down = parts_in(rows, tile_m);
  return down / 2 * across + down % 2 * parts_in(across, 2);
}

/// Fills begin [experts + 2]; by one warp.
template <GroupedProduct product, int width = tile_n>
__device__ void find_begins(Begin* begin, const std::int32_t* counts, const Sizes& sizes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto summed = [lane](int value) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int before = __shfl_up_sync(all_lanes, value, distance);
      if (lane >= distance) value += before;
    }
    return value;
  };
  int rows = 0, pairs = 0;
  for (int first = 0; first <= sizes.experts; first += 32) {
    const int expert = first + lane;
    const bool padding = expert == sizes.experts;
    int own = expert < sizes.experts ? counts[expert] : 0;
    const int row = rows + summed(own);
    if (padding) own = sizes.rows - row;
    const bool none = expert > sizes.experts || (padding && product == GroupedProduct::weight_grad);
    const int own_pairs = none ? 0 : pairs_of<product, width>(own, sizes), pair = pairs + summed(own_pairs);
    if (expert <= sizes.experts) begin[expert] = {padding ? row : row - own, pair - own_pairs};
    if (padding) begin[expert + 1] = {sizes.rows, pair};
    rows = __shfl_sync(all_lanes, row, 31);
    pairs = __shfl_sync(all_lanes, pair, 31);
  }
}

/// This block's tile of pairs of rising numbers.
template <GroupedProduct product, int width = tile_n, int depth = tile_k>
class Tiles {
 public:
  __device__ Tiles(const Begin* begin, const Sizes& sizes, std::uint32_t rank)
      : begin_(begin), sizes_(sizes), rank_(static_cast<int>(rank)), across_(parts_in(sizes.n, width)) {}
  /// Fills begin [experts + 2]; by one warp.
  static __device__ void find_begins(Begin* begin, const std::int32_t* counts, const Sizes& sizes) {
    grouped::find_begins<product, width>(begin, counts, sizes);
  }
  __device__ int pairs() const { return begin_[sizes_.experts + 1].pair; }
  /// `pair` is at least that of the last call. false: there is none of that number.
  __device__ bool find(int pair, Tile& tile) {
    while (expert_ <= sizes_.experts && pair >= begin_[expert_ + 1].pair) ++expert_;
    if (expert_ > sizes_.experts) return false;
    const Begin begin = begin_[expert_];
    const int rows = begin_[expert_ + 1].row - begin.row, within = pair - begin.pair, down = within / across_,
              across = within - down * across_;
    tile.expert = expert_;
    if constexpr (product == GroupedProduct::weight_grad) {
      tile.same_rows = false;
      tile.row = begin.row;
      tile.rows = rows;
      tile.m = (2 * down + rank_) * tile_m;
      tile.n = across * width;
      tile.k_blocks = parts_in(rows, depth);
    } else {
      // Where the number of tiles down is odd, the last one has none below it.
      tile.same_rows = rows - 2 * down * tile_m <= tile_m;
      const int row = (2 * down + (tile.same_rows ? 0 : rank_)) * tile_m;
      tile.row = begin.row + row;
      tile.rows = min(rows - row, tile_m);
      tile.m = 0;
      tile.n = (tile.same_rows ? 2 * across + rank_ : across) * width;
      tile.k_blocks = expert_ == sizes_.experts ? 0 : parts_in(sizes_.k, depth);
    }
    return true;
  }

 private:
  const Begin* begin_;
  const Sizes& sizes_;
  int rank_, across_;
  int expert_ = 0;
};

/// Numbers of pairs on their way from who draws them to all warps of the cluster that need them.
struct Drawn {
  static constexpr int slots = 2;
  std::uint64_t there[slots], read[slots];
  std::uint32_t number[slots];

  /// By one thread of each block. `readers`: warps of the cluster that call DrawReader::next().
  __device__ void init(int readers) {
    for (int i = 0; i < slots; ++i) {
      hopper::barrier_init(there + i, 1);
      hopper::barrier_init(read + i, readers);
    }
  }
  /// By one thread of the cluster's first block: draws until all pairs are. The counter is 0 before the launch.
  __device__ void draw(std::uint32_t* counter, std::uint32_t pairs) {
    const std::uint32_t clusters = gridDim.x / 2;
    std::uint32_t next = blockIdx.x / 2, phase = 1;
    for (int slot = 0;; slot ^= 1) {
      hopper::wait(read + slot, phase);
      for (std::uint32_t rank = 0; rank < 2; ++rank) hopper::send_word(number + slot, next, there + slot, rank);
      if (next >= pairs) return;
      next = clusters + atomicAdd(counter, 1U);
      if (slot == slots - 1) phase ^= 1;
    }
  }
};

class DrawReader {
 public:
  __device__ explicit DrawReader(Drawn& drawn) : drawn_(drawn) {}
  /// The next number; by a whole warp. `announces`: of one warp in each block.
  __device__ int next(bool announces) {
    const bool first = threadIdx.x % 32 == 0;
    if (announces && first) hopper::arrive_and_expect(drawn_.there + slot_, sizeof drawn_.number[0]);
    hopper::wait(drawn_.there + slot_, phase_);
    // The shuffle is what makes the word be here before the arrival, which does not wait for loads: once the barrier is full, the
    // next number but one is stored over it, and a warp that read that one would compute another tile than its neighbours.
    const int number = hopper::uniform(static_cast<int>(*static_cast<volatile std::uint32_t*>(drawn_.number + slot_)));
    if (first) hopper::arrive_at(drawn_.read + slot_, 0);
    slot_ ^= 1;
    if (slot_ == 0) phase_ ^= 1;
    return number;
  }

 private:
  Drawn& drawn_;
  int slot_ = 0;
  std::uint32_t phase_ = 0;
};

}  // namespace consist::cuda::grouped
