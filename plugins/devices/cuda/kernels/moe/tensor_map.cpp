#include "plugins/devices/cuda/kernels/moe/tensor_map.h"

#include <string>

#include "plugins/devices/cuda/check.h"

namespace consist::cuda {
namespace {

/// The driver's function, through the runtime: this plugin does not link the driver.
auto find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  constexpr unsigned since = 12000;
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, since, cudaEnableDefault, &found),
        "cuTensorMapEncodeTiled");
#else
  static_assert(CUDART_VERSION >= since);
  check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found), "cuTensorMapEncodeTiled");
#endif
  if (function == nullptr || found != cudaDriverEntryPointSuccess)
    throw UnavailableError("the NVIDIA driver has no function cuTensorMapEncodeTiled: it is too old for this build");
  return reinterpret_cast<decltype(&::cuTensorMapEncodeTiled)>(function);
}

CUtensorMapDataType type_of(DType dtype) {
  if (size_of(dtype) == 1) return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  return dtype == DType::f32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

}  // namespace

CUtensorMap tensor_map(const Buffer& tensor, std::array<std::int64_t, 3> sizes, std::array<int, 3> box) {
  static const auto encode = find_encode();
  const std::uint64_t element = size_of(tensor.dtype);
  cuuint64_t extents[3], strides[2];
  cuuint32_t boxes[3], steps[3] = {1, 1, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    extents[i] = static_cast<cuuint64_t>(sizes[i]);
    boxes[i] = static_cast<cuuint32_t>(box[i]);
  }
  strides[0] = extents[0] * element;
  strides[1] = strides[0] * extents[1];
  CUtensorMap map;
  const CUresult status =
      encode(&map, type_of(tensor.dtype), 3, tensor.data, extents, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw SystemError("CUDA: describing a tensor [" + std::to_string(sizes[2]) + ", " + std::to_string(sizes[1]) + ", " +
                      std::to_string(sizes[0]) + "] for copies (cuTensorMapEncodeTiled) failed: error " + std::to_string(status));
  }
  return map;
}

}  // namespace consist::cuda
