// Parts of a kernel's scratch memory, one behind the other.
#pragma once

#include <cstdint>

#include "consist/kernel.h"
#include "plugins/devices/cuda/kernels/common/launch.h"

namespace consist::cuda {

class Scratch {
 public:
  /// Where a part of that size begins.
  std::int64_t reserve(std::int64_t bytes) {
    const std::int64_t at = bytes_;
    bytes_ += divided_up(bytes, std::int64_t{256}) * 256;
    return at;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

inline char* part_of(void* workspace, std::int64_t at) {
  return static_cast<char*>(workspace) + at;
}

/// A buffer of which nothing but `data` counts.
inline Buffer buffer_at(void* data) {
  Buffer buffer;
  buffer.data = data;
  return buffer;
}

}  // namespace consist::cuda
