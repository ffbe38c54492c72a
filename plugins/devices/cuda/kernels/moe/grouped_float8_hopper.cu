// Products of experts' rows in 8-bit floats on Hopper, in the pipeline of grouped_pipeline.cuh. Both operands lie along k. Tensor cores
// keep some 14 bits of the sums that they add to; where all of fp32 is wanted, each 128 products are added up there and go to sums
// in fp32. Those need as many registers again, so that tiles are narrower.
#include "plugins/devices/cuda/kernels/moe/grouped_pipeline.cuh"
#include "plugins/devices/cuda/kernels/moe/hopper_code.cuh"
#include "plugins/devices/cuda/kernels/moe/hopper_float8.cuh"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/moe/tensor_map.h"

namespace consist::cuda {
namespace grouped {
namespace {

constexpr int depth = 128;                                   // products that are added up between one stage and the next
constexpr GroupedProduct forward = GroupedProduct::forward;  // rows times a weight, in both directions

/// Boxes of the tiles of operands, and shared memory for them. `promotes`: to fp32, after each stage.
template <bool promotes>
struct Float8 {
  static constexpr int width = promotes ? 192 : 256, a_boxes = tile_m / box_lines, b_boxes = width / box_lines,
                       a_bytes = a_boxes * box_bytes;
  using Shared = Pipeline<a_bytes + b_boxes * box_bytes>;
  using OwnTiles = Tiles<forward, width, depth>;
};

/// Brings all operands of this block's tiles; by one warp. `transposed`: b is [n, experts, k], else [experts, n, k].
template <bool promotes>
__device__ __forceinline__ void bring(typename Float8<promotes>::Shared& shared, typename Float8<promotes>::OwnTiles& tiles,
                                      const CUtensorMap& a, const CUtensorMap& b, bool transposed, int rank) {
  using F = Float8<promotes>;
  const bool first = threadIdx.x % 32 == 0;
  DrawReader draw(shared.drawn);
  Ring ring;
  Tile tile;
  while (tiles.find(draw.next(true), tile)) {
    for (int block = 0; first && block < tile.k_blocks; ++block) {
      std::uint8_t* const stage = shared.stage[ring.stage];
      std::uint64_t* const full = shared.full + ring.stage;
      const int k = block * depth;
      const auto load_a = [&](int box, bool both) {
        std::uint8_t* const to = stage + box * box_bytes;
        const int row = tile.row + box * box_lines;
        if (both)
          hopper::load_tile_for(both_blocks, to, a, full, k, row, 0);
        else
          hopper::load_tile(to, a, full, k, row, 0);
      };
      const auto load_b = [&](int box, bool both) {
        std::uint8_t* const to = stage + F::a_bytes + box * box_bytes;
        const int n = tile.n + box * box_lines, y = transposed ? tile.expert : n, z = transposed ? n : tile.expert;
        if (both)
          hopper::load_tile_for(both_blocks, to, b, full, k, y, z);
        else
          hopper::load_tile(to, b, full, k, y, z);
      };
      hopper::wait(shared.empty + ring.stage, ring.phase ^ 1);
      hopper::arrive_and_expect(full, F::Shared::stage_bytes);
      // Each block of the cluster brings half of what both need, for both.
      const auto of_block = [rank](int box, int boxes) { return 2 * box / boxes == rank; };
      for (int box = 0; box < F::a_boxes; ++box) {
        if (!tile.same_rows || of_block(box, F::a_boxes)) load_a(box, tile.same_rows);
      }
      for (int box = 0; box < F::b_boxes; ++box) {
        if (tile.same_rows || of_block(box, F::b_boxes)) load_b(box, !tile.same_rows);
      }
      ring.advance();
    }
    __syncwarp();
  }
}

/// sums = scale · 64 rows of a tile, stage by stage. first_a, first_b: the warpgroup's operands in the first stage.
template <bool promotes, bool wide_range, int count>
__device__ __forceinline__ void multiply_stages(typename Float8<promotes>::Shared& shared, Ring& ring, int k_blocks, std::uint32_t first_a,
                                                std::uint32_t first_b, float scale, float (&sums)[count]) {
  [[maybe_unused]] float promoted[promotes ? count : 1];
  int previous = 0;
  if constexpr (promotes) {
#pragma unroll
    for (float& sum : promoted) sum = 0;
  }
#pragma unroll 1
  for (int block = 0; block < k_blocks; ++block) {
    hopper::wait(shared.full + ring.stage, ring.phase);
    const std::uint32_t stage = static_cast<std::uint32_t>(ring.stage) * (Float8<promotes>::Shared::stage_bytes / 16);
    hopper::begin_products();
#pragma unroll
    for (std::uint32_t k = 0; k < depth / 32; ++k) {
      constexpr std::uint32_t step = 2;  // 32 codes, in units of 16 bytes
      hopper::multiply_float8<wide_range>(sums, hopper::operand(first_a + stage + k * step),
                                          hopper::operand(first_b + stage + k * step),
                                          k > 0      ? 1
                                          : promotes ? 0
                                                     : block);
    }
    hopper::commit_products();
    if constexpr (promotes) {
      // The other warpgroup's products run meanwhile.
      hopper::wait_for_products<0>();
      hopper::sums_are_there(sums);
      release(shared.empty + ring.stage);
#pragma unroll
      for (int i = 0; i < count; ++i) promoted[i] += sums[i];
    } else {
      hopper::wait_for_products<1>();
      if (block > 0) release(shared.empty + previous);
      previous = ring.stage;
    }
    ring.advance();
  }
  if constexpr (!promotes) {
    hopper::wait_for_products<0>();
    hopper::sums_are_there(sums);
    release(shared.empty + previous);
  }
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if constexpr (promotes)
      sums[i] = promoted[i] * scale;
    else
      sums[i] *= scale;
  }
}

/// Multiplies 64 rows of this block's tiles and scales the sums; by a warpgroup.
template <bool promotes, bool wide_range>
__device__ __forceinline__ void multiply(typename Float8<promotes>::Shared& shared, typename Float8<promotes>::OwnTiles& tiles,
                                         const CUtensorMap& to, bf16* d, float scale, const Sizes& sizes) {
  using F = Float8<promotes>;
  const int group = own_group();
  const std::uint32_t first_a = operand_in(shared.stage[0] + group * box_bytes, true),
                      first_b = operand_in(shared.stage[0] + F::a_bytes, true);
  float sums[F::width / 2];
  DrawReader draw(shared.drawn);
  Ring ring;
  Tile tile;
  while (tiles.find(draw.next(false), tile)) {
    bf16* const at = d + static_cast<std::int64_t>(tile.row) * sizes.n + tile.n;
    if (tile.k_blocks == 0) {
      const int first_row = group * box_lines;
      clear_rows<bf16, F::width>(at + static_cast<std::int64_t>(first_row) * sizes.n, tile.rows - first_row, sizes.n - tile.n,
                                 sizes.n);
      continue;
    }
    multiply_stages<promotes, wide_range>(shared, ring, hopper::uniform(tile.k_blocks), first_a, first_b, scale, sums);
    store_rows(sums, shared.slot[group], to, at, tile, group, sizes.n);
  }
  hopper::wait_for_reads<0>();
}

/// d [rows, n], which `to` describes, = descales · a [rows, k] times each row's expert's [n, k].
template <bool promotes, bool wide_range>
__global__ void CONSIST_PAIRS_OF_BLOCKS __launch_bounds__(threads, 1)
    multiply_float8_groups(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                           const __grid_constant__ CUtensorMap to, const std::int32_t* counts, const float* a_descale,
                           const float* b_descale, bf16* d, std::uint32_t* counter, const Sizes sizes, bool transposed) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using F = Float8<promotes>;
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& shared = *reinterpret_cast<typename F::Shared*>(memory);
  run_pipeline<typename F::OwnTiles>(
      shared, counts, counter, sizes,
      [&](typename F::OwnTiles& tiles, int rank) { bring<promotes>(shared, tiles, a, b, transposed, rank); },
      [&](typename F::OwnTiles& tiles) { multiply<promotes, wide_range>(shared, tiles, to, d, *a_descale * *b_descale, sizes); });
#endif
}

template <bool promotes, bool wide_range>
class HopperFloat8Product final : public Kernel {
 public:
  HopperFloat8Product(GroupedProduct product, const GroupedSizes& sizes, int multiprocessors)
      : product_(product),
        sizes_(sizes),
        blocks_(multiprocessors / 2 * 2),
        shared_(static_cast<int>(Float8<promotes>::Shared::size(sizes.experts))) {
    cuda::check(
        cudaFuncSetAttribute(multiply_float8_groups<promotes, wide_range>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_),
        "shared memory for grouped products");
  }
  std::int64_t workspace_bytes() const override { return sizeof(std::uint32_t); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const auto [experts, rows, m, n, k] = sizes_;
    const bool transposed = product_ == GroupedProduct::input_grad;
    const CUtensorMap a = tensor_map(in[0], {k, rows, 1}, {depth, box_lines, 1});
    const CUtensorMap b = transposed ? tensor_map(in[2], {k, experts, n}, {depth, 1, box_lines})
                                     : tensor_map(in[2], {k, n, experts}, {depth, box_lines, 1});
    const CUtensorMap d = tensor_map(out[0], {n, rows, 1}, {line_bytes / static_cast<int>(sizeof(bf16)), box_lines, 1});
    cudaStream_t stream = stream_of(queue);
    cuda::check(cudaMemsetAsync(workspace, 0, sizeof(std::uint32_t), stream), "cudaMemsetAsync");
    multiply_float8_groups<promotes, wide_range><<<blocks_of(blocks_), threads, static_cast<std::size_t>(shared_), stream>>>(
        a, b, d, in[4].as<std::int32_t>(), in[1].as<float>(), in[3].as<float>(), out[0].as<bf16>(),
        static_cast<std::uint32_t*>(workspace),
        {experts, static_cast<int>(rows), static_cast<int>(m), static_cast<int>(n), static_cast<int>(k)}, transposed);
    check_launch("grouped product of 8-bit floats");
  }

 private:
  GroupedProduct product_;
  GroupedSizes sizes_;
  std::int64_t blocks_;
  int shared_;
};

}  // namespace
}  // namespace grouped

Made make_hopper_float8_product(GroupedProduct product, const GroupedSizes& sizes, DType rows, bool fast,
                                const KernelSettings& settings) {
  constexpr std::int64_t most_shared = 227 * 1024, most = std::int64_t{1} << 30;
  const bool fits = in_step(16, {sizes.k}) && in_step(8, {sizes.n}) && std::max({sizes.rows, sizes.n, sizes.k}) < most;
  const bool any = sizes.experts > 0 && sizes.rows > 0 && sizes.n > 0 && sizes.k > 0;
  const std::int64_t shared =
      fast ? grouped::Float8<false>::Shared::size(sizes.experts) : grouped::Float8<true>::Shared::size(sizes.experts);
  if (!fits || !any || shared > most_shared || settings.multiprocessors < 2) return nullptr;
  hopper::require_bodies("the kernel of experts' products in 8-bit floats", plain_instead, settings);
  const auto make = [&]<bool promotes, bool wide_range>() -> Made {
    return std::make_unique<grouped::HopperFloat8Product<promotes, wide_range>>(product, sizes, settings.multiprocessors);
  };
  if (rows == DType::e5m2) return fast ? make.template operator()<false, true>() : make.template operator()<true, true>();
  return fast ? make.template operator()<false, false>() : make.template operator()<true, false>();
}

}  // namespace consist::cuda
