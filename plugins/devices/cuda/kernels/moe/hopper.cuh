// Hopper's own instructions (sm_90a): barriers in shared memory, the copy engine's tiles, products of warpgroups. Where the code
// is compiled for another GPU, nothing here may be called.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace consist::cuda::hopper {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ std::uint32_t rank_in_cluster() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// All threads of all blocks of the cluster meet.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Barriers: a phase ends when `arrivals` arrivals were counted and all announced bytes have arrived.

__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/// After barrier_init(), before the cluster meets: other blocks and the copy engine see the barriers.
__device__ __forceinline__ void barriers_are_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive_and_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
/// Arrives at the barrier that lies at the same place in block `rank` of the cluster. Loads of this thread from shared memory may
/// still be under way: whoever gives memory back by it uses what was loaded first.
__device__ __forceinline__ void arrive_at(std::uint64_t* barrier, std::uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}
/// Waits until the phase of that parity has ended.
__device__ __forceinline__ void wait(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// The copy engine. Coordinates: innermost dimension first.

__device__ __forceinline__ void load_tile(void* to, const CUtensorMap& map, std::uint64_t* barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          shared_address(to)),
      "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
/// Into the same place of every block in `blocks` (a bit each), at whose barriers the bytes are counted.
__device__ __forceinline__ void load_tile_for(std::uint16_t blocks, void* to, const CUtensorMap& map, std::uint64_t* barrier,
                                              int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6}], "
      "[%2], %3;" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(shared_address(barrier)), "h"(blocks), "r"(x), "r"(y), "r"(z)
      : "memory");
}
/// From shared memory; elements outside of the tensor are left out. Belongs to the thread's next commit_stores().
__device__ __forceinline__ void store_tile(const void* from, const CUtensorMap& map, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
                   reinterpret_cast<std::uint64_t>(&map)),
               "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
               : "memory");
}
/// The same, added to what is there.
__device__ __forceinline__ void add_tile(const void* from, const CUtensorMap& map, int x, int y, int z) {
  asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
                   reinterpret_cast<std::uint64_t>(&map)),
               "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
               : "memory");
}
__device__ __forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Waits until all but the last `left` groups of this thread's stores have read shared memory.
template <int left>
__device__ __forceinline__ void wait_for_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(left) : "memory");
}
/// Stores a word at the same place in block `rank`; its 4 bytes are counted at that block's barrier.
__device__ __forceinline__ void send_word(std::uint32_t* to, std::uint32_t value, std::uint64_t* barrier, std::uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 word, barrier;\n"
      "mapa.shared::cluster.u32 word, %0, %3;\n"
      "mapa.shared::cluster.u32 barrier, %2, %3;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [word], %1, [barrier];\n}" ::"r"(shared_address(to)),
      "r"(value), "r"(shared_address(barrier)), "r"(rank)
      : "memory");
}
/// Meets with the other threads that name the same barrier (1 to 15), of which there are `threads`.
__device__ __forceinline__ void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// Four matrices of 8 by 8 bf16: a thread's words are two neighbours each of row lane/4 of every matrix; lane l names where row
/// l%8 of matrix l/8 goes, 16 bytes.
__device__ __forceinline__ void store_matrices(void* row, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
/// Lets products and the copy engine see, after the next barrier, what this thread wrote to shared memory.
__device__ __forceinline__ void publish_to_engines() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Registers are moved from one warpgroup to others.
template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

/// The same value in all lanes of the warp, where the compiler cannot know that: it may then keep it in uniform registers.
__device__ __forceinline__ int uniform(int value) {
  return __shfl_sync(0xffffffffU, value, 0);
}

/// Where an operand lies in shared memory, in lines of 128 bytes, swizzled as the copy engine does, in units of 16 bytes. Lines
/// run along k (`along_k`), and 8 lines on lies the next 8 of the other dimension; or they run along m or n, then the next 64 of
/// that lie `block_bytes` on. May be advanced by adding to it.
__device__ __forceinline__ std::uint32_t operand_at(const void* first, bool along_k, std::uint32_t block_bytes) {
  return (along_k ? 1 : block_bytes >> 4) << 16 | (shared_address(first) & 0x3ffff) >> 4;
}
__device__ __forceinline__ std::uint64_t operand(std::uint32_t at) {
  constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62, eight_lines = std::uint64_t{1024 >> 4} << 32;
  return swizzle_128 | eight_lines | at;
}

__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `left` committed groups are under way.
template <int left>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

#define CONSIST_SUMS_8(d, i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define CONSIST_SUMS_32(d, i) CONSIST_SUMS_8(d, i), CONSIST_SUMS_8(d, i + 8), CONSIST_SUMS_8(d, i + 16), CONSIST_SUMS_8(d, i + 24)

/// sums [64, 256] (+)= a [64, 16] b [16, 256]: bf16 operands, f32 sums. 128 sums a thread: of rows lane/4 and lane/4 + 8 of its
/// warp's 16, columns 8j + lane%4·2 and the next: sums[4j], sums[4j + 1] of the first row, sums[4j + 2], sums[4j + 3] of the
/// second. `a_along_k`, `b_along_k`: operand_at() was told so. `add` 0: sums hold nothing yet.
template <bool a_along_k, bool b_along_k>
__device__ __forceinline__ void multiply(float (&sums)[128], std::uint64_t a, std::uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, %131, %132;\n}"
      : CONSIST_SUMS_32(sums, 0), CONSIST_SUMS_32(sums, 32), CONSIST_SUMS_32(sums, 64), CONSIST_SUMS_32(sums, 96)
      : "l"(a), "l"(b), "r"(add), "n"(a_along_k ? 0 : 1), "n"(b_along_k ? 0 : 1));
}
#undef CONSIST_SUMS_32
#undef CONSIST_SUMS_8

/// The compiler must not read sums before this; what they are computed of has been read behind it.
template <int count>
__device__ __forceinline__ void sums_are_there(float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

}  // namespace consist::cuda::hopper
