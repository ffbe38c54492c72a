// What the makers and launches of kernels share, on the host.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>

#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/kernels.h"

namespace consist::cuda {

/// K<T> for the dtype of activations and parameters.
template <template <typename> class K, typename... Arguments>
Made by_dtype(DType type, Arguments&&... arguments) {
  if (type == DType::f32) return std::make_unique<K<float>>(std::forward<Arguments>(arguments)...);
  if (type == DType::bf16) return std::make_unique<K<__nv_bfloat16>>(std::forward<Arguments>(arguments)...);
  return nullptr;
}

/// K<T, G> for that and the dtype of gradients.
template <template <typename, typename> class K, typename... Arguments>
Made by_dtypes(DType type, DType gradient, Arguments&&... arguments) {
  using bf16 = __nv_bfloat16;
  if (type == DType::f32 && gradient == DType::f32)
    return std::make_unique<K<float, float>>(std::forward<Arguments>(arguments)...);
  if (type == DType::bf16 && gradient == DType::f32)
    return std::make_unique<K<bf16, float>>(std::forward<Arguments>(arguments)...);
  if (type == DType::bf16 && gradient == DType::bf16)
    return std::make_unique<K<bf16, bf16>>(std::forward<Arguments>(arguments)...);
  return nullptr;
}

inline bool is_float(DType type) noexcept {
  return type == DType::f32 || type == DType::bf16;
}

inline cudaStream_t stream_of(NativeQueue queue) noexcept {
  return static_cast<cudaStream_t>(queue);
}

/// Whether rows of `elements` elements can be moved in packs of `pack`: every row and every pointer (null ones count as aligned)
/// starts at 16 bytes. Views need not.
inline bool in_packs(std::int64_t elements, int pack, std::initializer_list<const void*> pointers) noexcept {
  return elements % pack == 0 && std::all_of(pointers.begin(), pointers.end(),
                                             [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; });
}

inline std::int64_t divided_up(std::int64_t count, std::int64_t by) noexcept {
  return (count + by - 1) / by;
}

/// A grid of that many blocks. Zero elements are zero blocks, which CUDA refuses: do not launch then.
inline unsigned blocks_of(std::int64_t count) noexcept {
  return static_cast<unsigned>(count);
}

}  // namespace consist::cuda
