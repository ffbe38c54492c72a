// 8-bit floats on the device, value for value those of consist/float8.h.
#pragma once

#include <cuda_fp8.h>

#include <cmath>
#include <cstdint>

#include "plugins/devices/cuda/kernels/common/host_report.h"

namespace consist::cuda {

/// As float8_scale (consist/float8.h).
template <__nv_fp8_interpretation_t format>
__device__ __forceinline__ float scale_of(float amax) {
  const std::uint32_t bits = __float_as_uint(amax);
  if (bits == 0) return 1.0F;
  if (bits >= 0x7f800000U) return __uint_as_float(0x7fc00000U);
  const int room = (format == __NV_E4M3 ? 8 : 15) - ((bits & 0x7fffffU) > 0x600000U ? 1 : 0);
  const int exponent = room - static_cast<int>(bits >> 23) + 254;
  return __uint_as_float(static_cast<std::uint32_t>(min(max(exponent, 1), 253)) << 23);
}

/// Codes of two pairs of bf16, the first one lowest, each with a scale of its own.
template <__nv_fp8_interpretation_t format>
__device__ __forceinline__ std::uint32_t four_codes(std::uint32_t first, std::uint32_t second, const float4& scales) {
  const float2 low{__uint_as_float(first << 16) * scales.x, __uint_as_float(first & 0xffff0000U) * scales.y};
  const float2 high{__uint_as_float(second << 16) * scales.z, __uint_as_float(second & 0xffff0000U) * scales.w};
  return static_cast<std::uint32_t>(__nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, format)) |
         static_cast<std::uint32_t>(__nv_cvt_float2_to_fp8x2(high, __NV_SATFINITE, format)) << 16;
}
template <__nv_fp8_interpretation_t format>
__device__ __forceinline__ std::uint32_t four_codes(std::uint32_t first, std::uint32_t second, float scale) {
  return four_codes<format>(first, second, float4{scale, scale, scale, scale});
}

/// Tells the host of an amax that no scale brings into range.
__device__ __forceinline__ void report_amax(float amax, HostReport::Words* report) {
  if (isfinite(amax)) return;
  report->value = isnan(amax) ? 1 : 0;
  report->found = 1;
}

/// By one thread of the grid.
__device__ __forceinline__ void write_descale(float amax, float scale, float* descale, HostReport::Words* report) {
  *descale = 1.0F / scale;
  report_amax(amax, report);
}

}  // namespace consist::cuda
