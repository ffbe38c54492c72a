// Arguments of kernels of slice, on every device.
#pragma once

#include <cstdint>

#include "consist/kernel.h"

namespace consist::kernels {

/// A slice as `count` runs of `bytes` contiguous bytes: run i lies at offset + i·stride in the whole tensor.
struct SliceRuns {
  std::int64_t count = 1, bytes = 0, stride = 0, offset = 0;

  explicit SliceRuns(const KernelRequest& r) {
    const Buffer &whole = r.inputs[0], &part = r.outputs[0];
    const auto size = static_cast<std::int64_t>(size_of(whole.dtype));
    const auto dim = r.attributes.integer("dim");
    if (dim < 0) {  // flat: one run of the flattened tensor
      bytes = part.shape.elements() * size;
      offset = r.output_origins.empty() ? 0 : r.output_origins[0][0] * size;
      return;
    }
    const int d = static_cast<int>(dim);
    std::int64_t inner = size;
    for (int i = d + 1; i < whole.shape.rank(); ++i) inner *= whole.shape[i];
    for (int i = 0; i < d; ++i) count *= whole.shape[i];
    bytes = part.shape[d] * inner;
    stride = whole.shape[d] * inner;
    const auto at = static_cast<std::size_t>(d);
    if (!r.output_origins.empty()) offset = (r.output_origins[0][at] - r.input_origins[0][at]) * inner;
  }
};

}  // namespace consist::kernels
