// Hopper's products of warpgroups of 8-bit floats (sm_90a). Both operands lie along k, as hopper::operand_at() has it.
#pragma once

#include "plugins/devices/cuda/kernels/moe/hopper.cuh"

namespace consist::cuda::hopper {

#define CONSIST_SUMS_8(d, i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define CONSIST_SUMS_32(d, i) CONSIST_SUMS_8(d, i), CONSIST_SUMS_8(d, i + 8), CONSIST_SUMS_8(d, i + 16), CONSIST_SUMS_8(d, i + 24)

#define CONSIST_MULTIPLY_256(types, d, a, b, add) \
  asm volatile( \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n256k32.f32." types " {" \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, " \
      "%128, %129, p, 1, 1;\n}" \
      : CONSIST_SUMS_32(d, 0), CONSIST_SUMS_32(d, 32), CONSIST_SUMS_32(d, 64), CONSIST_SUMS_32(d, 96) \
      : "l"(a), "l"(b), "r"(add))

#define CONSIST_MULTIPLY_192(types, d, a, b, add) \
  asm volatile( \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n192k32.f32." types " {" \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, " \
      "%96, %97, p, 1, 1;\n}" \
      : CONSIST_SUMS_32(d, 0), CONSIST_SUMS_32(d, 32), CONSIST_SUMS_32(d, 64) \
      : "l"(a), "l"(b), "r"(add))

/// sums [64, 256 or 192] (+)= a [64, 32] b [32, 256 or 192]: a in e4m3 or, if `wide_range`, e5m2, b in e4m3; sums f32, of which tensor
/// cores keep some 14 bits. Which sums a thread has: hopper::multiply().
template <bool wide_range>
__device__ __forceinline__ void multiply_float8(float (&sums)[128], std::uint64_t a, std::uint64_t b, int add) {
  if constexpr (wide_range)
    CONSIST_MULTIPLY_256("e5m2.e4m3", sums, a, b, add);
  else
    CONSIST_MULTIPLY_256("e4m3.e4m3", sums, a, b, add);
}
template <bool wide_range>
__device__ __forceinline__ void multiply_float8(float (&sums)[96], std::uint64_t a, std::uint64_t b, int add) {
  if constexpr (wide_range)
    CONSIST_MULTIPLY_192("e5m2.e4m3", sums, a, b, add);
  else
    CONSIST_MULTIPLY_192("e4m3.e4m3", sums, a, b, add);
}
#undef CONSIST_MULTIPLY_192
#undef CONSIST_MULTIPLY_256
#undef CONSIST_SUMS_32
#undef CONSIST_SUMS_8

}  // namespace consist::cuda::hopper
