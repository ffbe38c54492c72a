// Kernels over many tensors in one launch: their addresses are a kernel parameter (up to 32,764 bytes, CUDA 12.1 and later), so
// that nothing has to be copied to the device before, and a captured graph keeps them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace consist::cuda {

constexpr int chunk = 8192;  // elements of an update's block

/// Entries are sorted by `first`, the number of the first chunk of work that is theirs.
template <typename Entry>
struct TensorList {
  static constexpr int capacity = (32'764 - 512) / static_cast<int>(sizeof(Entry));  // 512: other parameters of the kernel
  Entry entry[capacity];
  std::int32_t count = 0;
  std::uint32_t chunks = 0;  ///< of all entries

  bool full() const { return count == capacity; }
  /// Adds a tensor of `elements` elements, which must not be 0, cut into chunks of `chunk`.
  void add(Entry made, std::int64_t elements, std::int64_t chunk) {
    made.first = chunks;
    entry[count++] = made;
    chunks += static_cast<std::uint32_t>((elements + chunk - 1) / chunk);
  }
  void clear() { count = 0, chunks = 0; }
};

/// Index of the entry that chunk `chunk` belongs to.
template <typename Entry>
__device__ __forceinline__ int entry_of(const TensorList<Entry>& list, std::uint32_t chunk) {
  int low = 0, high = list.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (list.entry[middle].first <= chunk)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace consist::cuda
