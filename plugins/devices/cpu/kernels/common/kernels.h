// Names that the files of kernels share. Each registers its own (CONSIST_KERNEL).
#pragma once

#include <cstdint>
#include <utility>

#include "consist/kernel.h"
#include "plugins/devices/common/makers.h"
#include "plugins/devices/cpu/kernel_library.h"
#include "plugins/devices/cpu/kernels/common/numbers.h"

namespace consist::cpu {

using kernels::at;
using kernels::is_float;
using kernels::Made;

template <template <typename> class K, typename... Arguments>
Made by_dtype(DType type, Arguments&&... arguments) {
  return kernels::for_dtype<K, bf16>(type, std::forward<Arguments>(arguments)...);
}
template <template <typename, typename> class K, typename... Arguments>
Made by_dtypes(DType type, DType gradient, Arguments&&... arguments) {
  return kernels::for_dtypes<K, bf16>(type, gradient, std::forward<Arguments>(arguments)...);
}

/// Bytes of a part of a workspace, so that what lies behind it is aligned.
inline std::int64_t padded(std::int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

/// Rows [first, last) of `count` that part `part` of `parts` works on.
struct Part {
  std::int64_t first, last;
};
inline Part part_of(std::int64_t count, int part, int parts) {
  return {count * part / parts, count * (part + 1) / parts};
}

}  // namespace consist::cpu
