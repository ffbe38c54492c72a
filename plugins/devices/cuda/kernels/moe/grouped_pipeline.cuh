// The pipeline in which Hopper multiplies experts' rows, whatever their dtype. Blocks stay for the whole launch, one on each
// multiprocessor, in clusters of two. One warp of a block has the copy engine bring operands into a ring of stages, two warpgroups
// multiply 64 rows of a tile each, and the results leave through the copy engine while the next tile is multiplied. Of the operands
// that both blocks of a cluster need, each brings half, for both.
#pragma once

#include "plugins/devices/cuda/kernels/moe/grouped_store.cuh"

namespace consist::cuda::grouped {

constexpr int threads = 3 * 128, stages = 4;
constexpr std::uint16_t both_blocks = 3;  ///< of the cluster, a bit each

/// A block's shared memory; `bytes`: of the operands of a stage.
template <int bytes>
struct Pipeline {
  static constexpr int stage_bytes = bytes;

  std::uint8_t stage[stages][bytes];
  std::uint8_t slot[2][slots * box_bytes];
  std::uint64_t full[stages], empty[stages];
  Drawn drawn;
  Begin begin[1];  ///< [experts + 2]

  static std::int64_t size(std::int64_t experts) {
    return static_cast<std::int64_t>(sizeof(Pipeline)) + (experts + 1) * std::int64_t{sizeof(Begin)};
  }
  /// Makes the barriers; by one thread, before the cluster meets.
  __device__ __forceinline__ void init() {
    constexpr int consumers = 2 * 8, readers = 2 * (8 + 1);  // warps of the cluster
    for (int i = 0; i < stages; ++i) {
      hopper::barrier_init(full + i, 1);
      hopper::barrier_init(empty + i, consumers);
    }
    drawn.init(readers);
    hopper::barriers_are_made();
  }
};

/// The stage that is next, and whether its barriers' phases are odd.
struct Ring {
  int stage = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage < stages) return;
    stage = 0;
    phase ^= 1;
  }
};

/// A block's work, from its start to its end: one warp calls bring(tiles, rank in the cluster), two warpgroups multiply(tiles).
template <typename OwnTiles, typename Shared, typename Bring, typename Multiply>
__device__ __forceinline__ void run_pipeline(Shared& shared, const std::int32_t* counts, std::uint32_t* counter, const Sizes& sizes,
                                             const Bring& bring, const Multiply& multiply) {
  const std::uint32_t rank = hopper::rank_in_cluster();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) shared.init();
  if (warp == 1) OwnTiles::find_begins(shared.begin, counts, sizes);
  __syncthreads();
  hopper::cluster_sync();
  OwnTiles tiles(shared.begin, sizes, rank);
  if (warp < 4) {
    hopper::give_registers<40>();
    if (warp == 0) bring(tiles, static_cast<int>(rank));
    if (threadIdx.x == 32 && rank == 0) shared.drawn.draw(counter, static_cast<std::uint32_t>(tiles.pairs()));
  } else {
    hopper::take_registers<232>();
    multiply(tiles);
  }
  __syncwarp();
  hopper::cluster_sync();  // its other block may still write here
}

/// The calling warpgroup's number among those that multiply.
__device__ __forceinline__ int own_group() {
  return hopper::uniform(static_cast<int>(threadIdx.x) / 128 - 1);
}

/// hopper::operand_at(), as a value that all lanes of the warp share.
__device__ __forceinline__ std::uint32_t operand_in(const std::uint8_t* stage, bool along_k) {
  return static_cast<std::uint32_t>(hopper::uniform(static_cast<int>(hopper::operand_at(stage, along_k, box_bytes))));
}

/// Gives a stage back to the copy engine in both blocks; by each warp that multiplies.
__device__ __forceinline__ void release(std::uint64_t* empty) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < 2) hopper::arrive_at(empty, static_cast<std::uint32_t>(lane));
}

/// Stores the rows of warpgroup `group` of a tile of experts' rows; `at`: the tile's first element, in rows of n.
template <typename T, int count>
__device__ __forceinline__ void store_rows(const float (&sums)[count], std::uint8_t* own_slots, const CUtensorMap& to, T* at,
                                           const Tile& tile, int group, int n) {
  const int first_row = group * box_lines;
  if (tile.rows >= first_row + box_lines)
    store_boxes<false, T>(sums, own_slots, to, group, tile.n, tile.row + first_row, 0);
  else
    store_some(sums, at, first_row + static_cast<int>(threadIdx.x) % 128 / 32 * 16, tile.rows, n - tile.n, n);
}

}  // namespace consist::cuda::grouped
