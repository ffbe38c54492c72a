// Products of experts' rows in bf16 on Hopper, in the pipeline of grouped_pipeline.cuh.
#include "plugins/devices/cuda/kernels/moe/grouped_pipeline.cuh"
#include "plugins/devices/cuda/kernels/moe/hopper_code.cuh"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/moe/tensor_map.h"

namespace consist::cuda {
namespace grouped {

constexpr int a_bytes = tile_m * line_bytes, b_bytes = tile_n * line_bytes;
using Shared = Pipeline<a_bytes + b_bytes>;

template <GroupedProduct product>
struct Operands {
  static constexpr int a_boxes = a_bytes / box_bytes, b_boxes = b_bytes / box_bytes;
  static constexpr bool of_weights = product == GroupedProduct::weight_grad;
  static constexpr bool a_along_k = !of_weights, b_along_k = product == GroupedProduct::forward;
  /// From one group of 16 along k to the next, in units of 16 bytes.
  static constexpr std::uint32_t a_step = a_along_k ? 2 : 16 * line_bytes / 16, b_step = b_along_k ? 2 : 16 * line_bytes / 16;

  /// A box of a, or of b, into its place in a stage, for some blocks or, with 0, for this one.
  static __device__ __forceinline__ void load_a(std::uint8_t* stage, const CUtensorMap& a, std::uint64_t* full, const Tile& tile,
                                                int box, int k, std::uint16_t blocks) {
    const int x = of_weights ? tile.m + box * 64 : k, y = of_weights ? tile.row + k : tile.row + box * box_lines;
    load(stage + box * box_bytes, a, full, x, y, 0, blocks);
  }
  static __device__ __forceinline__ void load_b(std::uint8_t* stage, const CUtensorMap& b, std::uint64_t* full, const Tile& tile,
                                                int box, int k, std::uint16_t blocks) {
    const int n = tile.n + box * 64, z = of_weights ? 0 : tile.expert;
    const int x = b_along_k ? k : n, y = b_along_k ? n : of_weights ? tile.row + k : k;
    load(stage + a_bytes + box * box_bytes, b, full, x, y, z, blocks);
  }

 private:
  static __device__ __forceinline__ void load(std::uint8_t* to, const CUtensorMap& map, std::uint64_t* full, int x, int y, int z,
                                              std::uint16_t blocks) {
    if (blocks == 0)
      hopper::load_tile(to, map, full, x, y, z);
    else
      hopper::load_tile_for(blocks, to, map, full, x, y, z);
  }
};

/// Brings all operands of this block's tiles; by one warp.
template <GroupedProduct product, bool adds_bf16>
__device__ __forceinline__ void bring(Shared& shared, Tiles<product>& tiles, const CUtensorMap& a, const CUtensorMap& b,
                                      const CUtensorMap& d, int rank) {
  using O = Operands<product>;
  const bool first = threadIdx.x % 32 == 0;
  DrawReader draw(shared.drawn);
  Ring ring;
  Tile tile;
  while (tiles.find(draw.next(true), tile)) {
    for (int block = 0; first && block < tile.k_blocks; ++block) {
      std::uint8_t* const stage = shared.stage[ring.stage];
      std::uint64_t* const full = shared.full + ring.stage;
      const int k = block * tile_k;
      hopper::wait(shared.empty + ring.stage, ring.phase ^ 1);
      hopper::arrive_and_expect(full, Shared::stage_bytes);
      if (tile.same_rows) {
        for (int box = rank * O::a_boxes / 2; box < (rank + 1) * O::a_boxes / 2; ++box)
          O::load_a(stage, a, full, tile, box, k, both_blocks);
        for (int box = 0; box < O::b_boxes; ++box) O::load_b(stage, b, full, tile, box, k, 0);
      } else {
        for (int box = 0; box < O::a_boxes; ++box) O::load_a(stage, a, full, tile, box, k, 0);
        for (int box = rank * O::b_boxes / 2; box < (rank + 1) * O::b_boxes / 2; ++box)
          O::load_b(stage, b, full, tile, box, k, both_blocks);
      }
      ring.advance();
    }
    // Behind them, what they are added to: [64 rows, 64 columns] a box, two boxes down and two across a stage.
    for (int half = 0; adds_bf16 && first && tile.k_blocks > 0 && half < 2; ++half) {
      hopper::wait(shared.empty + ring.stage, ring.phase ^ 1);
      hopper::arrive_and_expect(shared.full + ring.stage, 4 * box_bytes);
      for (int box = 0; box < 4; ++box) {
        hopper::load_tile(shared.stage[ring.stage] + box * box_bytes, d, shared.full + ring.stage,
                          tile.n + half * (tile_n / 2) + box % 2 * 64, tile.m + box / 2 * box_lines, tile.expert);
      }
      ring.advance();
    }
    __syncwarp();
  }
}

/// Clears what lies in a stage behind the first `lines` rows of both operands: another expert's. By both warpgroups.
template <GroupedProduct product>
__device__ __forceinline__ void clear_behind(std::uint8_t* stage, int lines) {
  using O = Operands<product>;
  constexpr int of_line = line_bytes / 16;
  const int chunks = (tile_k - lines) * of_line;
  for (int i = static_cast<int>(threadIdx.x) - 128; i < chunks * (O::a_boxes + O::b_boxes); i += 256) {
    const int box = i / chunks;
    std::uint8_t* const behind = stage + box * box_bytes + lines * line_bytes;
    *reinterpret_cast<uint4*>(behind + (i - box * chunks) * 16) = uint4{};
  }
  hopper::publish_to_engines();
  hopper::meet(1, 256);
}

/// sums = 64 rows of a tile, stage by stage. first_a, first_b: the warpgroup's operands in the first stage.
template <GroupedProduct product>
__device__ __forceinline__ void multiply_stages(Shared& shared, Ring& ring, const Tile& tile, std::uint32_t first_a,
                                                std::uint32_t first_b, float (&sums)[tile_n / 2]) {
  using O = Operands<product>;
  const int k_blocks = hopper::uniform(tile.k_blocks);
  int previous = 0;
#pragma unroll 1
  for (int block = 0; block < k_blocks; ++block) {
    hopper::wait(shared.full + ring.stage, ring.phase);
    if constexpr (O::of_weights) {
      if (const int lines = tile.rows - block * tile_k; lines < tile_k) clear_behind<product>(shared.stage[ring.stage], lines);
    }
    const std::uint32_t stage = static_cast<std::uint32_t>(ring.stage) * (Shared::stage_bytes / 16);
    hopper::begin_products();
#pragma unroll
    for (std::uint32_t k = 0; k < tile_k / 16; ++k) {
      hopper::multiply<O::a_along_k, O::b_along_k>(sums, hopper::operand(first_a + stage + k * O::a_step),
                                                   hopper::operand(first_b + stage + k * O::b_step), k == 0 ? block : 1);
    }
    hopper::commit_products();
    hopper::wait_for_products<1>();
    if (block > 0) release(shared.empty + previous);
    previous = ring.stage;
    ring.advance();
  }
  hopper::wait_for_products<0>();
  hopper::sums_are_there(sums);
  release(shared.empty + previous);
}

/// Adds to sums what the result holds, in bf16, which the next two stages have.
__device__ __forceinline__ void add_held(Shared& shared, Ring& ring, int group, float (&sums)[tile_n / 2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    hopper::wait(shared.full + ring.stage, ring.phase);
#pragma unroll
    for (int box = 0; box < 2; ++box) add_box(sums + half * 64 + box * 32, shared.stage[ring.stage] + (2 * group + box) * box_bytes);
    hopper::sums_are_there(sums);  // and so what they were added to has been read
    __syncwarp();
    release(shared.empty + ring.stage);
    ring.advance();
  }
}

/// Multiplies 64 rows of this block's tiles; by a warpgroup.
template <GroupedProduct product, bool add, typename T>
__device__ __forceinline__ void multiply(Shared& shared, Tiles<product>& tiles, const CUtensorMap& to, T* d, const Sizes& sizes) {
  using O = Operands<product>;
  constexpr bool adds_bf16 = add && sizeof(T) == 2;
  const int group = own_group();
  const std::uint32_t first_a = operand_in(shared.stage[0] + group * box_bytes, O::a_along_k),
                      first_b = operand_in(shared.stage[0] + a_bytes, O::b_along_k);
  float sums[tile_n / 2];
  DrawReader draw(shared.drawn);
  Ring ring;
  Tile tile;
  while (tiles.find(draw.next(false), tile)) {
    const int first_row = group * box_lines;  // of the tile
    // The tile's first element.
    T* const at = d + (O::of_weights ? static_cast<std::int64_t>(tile.expert) * sizes.m + tile.m : tile.row) * sizes.n + tile.n;
    if (tile.k_blocks == 0) {
      const int rows = O::of_weights ? sizes.m - tile.m : tile.rows;
      if (!add) clear_rows(at + static_cast<std::int64_t>(first_row) * sizes.n, rows - first_row, sizes.n - tile.n, sizes.n);
      continue;
    }
    multiply_stages<product>(shared, ring, tile, first_a, first_b, sums);
    if constexpr (adds_bf16) add_held(shared, ring, group, sums);
    if constexpr (O::of_weights)
      store_boxes<add && !adds_bf16, T>(sums, shared.slot[group], to, group, tile.n, tile.m + first_row, tile.expert);
    else
      store_rows(sums, shared.slot[group], to, at, tile, group, sizes.n);
  }
  hopper::wait_for_reads<0>();
}

/// d: result; `to` describes it. With `add`, weights' gradients are added to what it holds.
template <GroupedProduct product, bool add, typename T>
__global__ void CONSIST_PAIRS_OF_BLOCKS __launch_bounds__(threads, 1)
    multiply_groups(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                    const __grid_constant__ CUtensorMap to, const std::int32_t* counts, T* d, std::uint32_t* counter,
                    const Sizes sizes) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  run_pipeline<Tiles<product>>(
      shared, counts, counter, sizes,
      [&](Tiles<product>& tiles, int rank) { bring<product, add && sizeof(T) == 2>(shared, tiles, a, b, to, rank); },
      [&](Tiles<product>& tiles) { multiply<product, add, T>(shared, tiles, to, d, sizes); });
#endif
}

namespace {

template <GroupedProduct product, typename T>
class HopperProduct final : public Kernel {
 public:
  HopperProduct(const GroupedSizes& sizes, int multiprocessors)
      : sizes_(sizes), blocks_(multiprocessors / 2 * 2), shared_(static_cast<int>(Shared::size(sizes.experts))) {
    cuda::check(cudaFuncSetAttribute(multiply_groups<product, false, T>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_),
                "shared memory for grouped products");
    if constexpr (product == GroupedProduct::weight_grad) {
      cuda::check(cudaFuncSetAttribute(multiply_groups<product, true, T>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_),
                  "shared memory for grouped products");
    }
  }
  std::int64_t workspace_bytes() const override { return sizeof(std::uint32_t); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    constexpr bool of_weights = product == GroupedProduct::weight_grad;
    const auto [experts, rows, m, n, k] = sizes_;
    if (rows == 0 && !of_weights) return;
    const GroupedOperands operands = grouped_operands(product, in);
    const auto map = [](const Buffer& tensor, std::int64_t columns, std::int64_t lines, std::int64_t matrices) {
      return tensor_map(tensor, {columns, lines, matrices}, {line_bytes / static_cast<int>(size_of(tensor.dtype)), box_lines, 1});
    };
    const CUtensorMap a = map(*operands.a, of_weights ? m : k, rows, 1);
    const CUtensorMap b = of_weights                           ? map(*operands.b, n, rows, 1)
                          : product == GroupedProduct::forward ? map(*operands.b, k, n, experts)
                                                               : map(*operands.b, n, k, experts);
    const CUtensorMap d = of_weights ? map(out[0], n, m, experts) : map(out[0], n, rows, 1);
    cudaStream_t stream = stream_of(queue);
    cuda::check(cudaMemsetAsync(workspace, 0, sizeof(std::uint32_t), stream), "cudaMemsetAsync");
    auto* run = multiply_groups<product, false, T>;
    if constexpr (of_weights) {
      if (operands.adds) run = multiply_groups<product, true, T>;
    }
    run<<<blocks_of(blocks_), threads, static_cast<std::size_t>(shared_), stream>>>(
        a, b, d, operands.counts->as<std::int32_t>(), out[0].as<T>(), static_cast<std::uint32_t*>(workspace),
        {experts, static_cast<int>(rows), static_cast<int>(m), static_cast<int>(n), static_cast<int>(k)});
    check_launch("grouped product");
  }

 private:
  GroupedSizes sizes_;
  std::int64_t blocks_;
  int shared_;
};

}  // namespace
}  // namespace grouped

Made make_hopper_product(GroupedProduct product, const GroupedSizes& sizes, DType type, const KernelSettings& settings) {
  constexpr std::int64_t most_shared = 227 * 1024, most = std::int64_t{1} << 30;
  const bool fits =
      in_step(per_access<bf16>, {sizes.m, sizes.n, sizes.k}) && std::max({sizes.rows, sizes.m, sizes.n, sizes.k}) < most;
  const bool any = sizes.experts > 0 && sizes.rows > 0 && sizes.n > 0;
  if (!fits || !any || grouped::Shared::size(sizes.experts) > most_shared || settings.multiprocessors < 2) return nullptr;
  hopper::require_bodies("the kernel of experts' products in bf16", plain_instead, settings);
  using grouped::HopperProduct;
  switch (product) {
    case GroupedProduct::forward:
      return std::make_unique<HopperProduct<GroupedProduct::forward, bf16>>(sizes, settings.multiprocessors);
    case GroupedProduct::input_grad:
      return std::make_unique<HopperProduct<GroupedProduct::input_grad, bf16>>(sizes, settings.multiprocessors);
    case GroupedProduct::weight_grad:
      if (type == DType::f32)
        return std::make_unique<HopperProduct<GroupedProduct::weight_grad, float>>(sizes, settings.multiprocessors);
      return std::make_unique<HopperProduct<GroupedProduct::weight_grad, bf16>>(sizes, settings.multiprocessors);
  }
  return nullptr;
}

}  // namespace consist::cuda
