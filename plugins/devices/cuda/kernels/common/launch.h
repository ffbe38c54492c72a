// Helpers that the makers and launches of kernels share, on the host.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/common/kernels.h"

namespace consist::cuda {

/// A block's, where a kernel has no number of its own.
constexpr int threads = 256, warps = threads / 32;

template <template <typename> class K, typename... Arguments>
Made by_dtype(DType type, Arguments&&... arguments) {
  return kernels::for_dtype<K, __nv_bfloat16>(type, std::forward<Arguments>(arguments)...);
}
template <template <typename, typename> class K, typename... Arguments>
Made by_dtypes(DType type, DType gradient, Arguments&&... arguments) {
  return kernels::for_dtypes<K, __nv_bfloat16>(type, gradient, std::forward<Arguments>(arguments)...);
}

/// The dtype of elements of type T.
template <typename T>
constexpr DType type_of() {
  return sizeof(T) == 4 ? DType::f32 : DType::bf16;
}

inline cudaStream_t stream_of(NativeQueue queue) noexcept {
  return static_cast<cudaStream_t>(queue);
}

/// True if rows of `elements` elements can be moved in packs of `pack`: every row and every pointer (null ones count as aligned)
/// starts at 16 bytes. Views need not.
inline bool in_packs(std::int64_t elements, int pack, std::initializer_list<const void*> pointers) noexcept {
  return elements % pack == 0 && std::all_of(pointers.begin(), pointers.end(),
                                             [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; });
}

/// True if rows that lie so many elements apart all start at packs if the first does.
inline bool in_step(int pack, std::initializer_list<std::int64_t> strides) noexcept {
  return std::all_of(strides.begin(), strides.end(), [pack](std::int64_t stride) { return stride % pack == 0; });
}

inline std::int64_t divided_up(std::int64_t count, std::int64_t by) noexcept {
  return (count + by - 1) / by;
}

/// A grid of that many blocks. Zero elements are zero blocks, which CUDA refuses: do not launch then.
inline unsigned blocks_of(std::int64_t count) noexcept {
  return static_cast<unsigned>(count);
}

}  // namespace consist::cuda
