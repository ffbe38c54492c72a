// The second half of sums over rows: blocks leave partial sums of their rows, which are added here in a fixed order.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace consist::cuda {

/// to[i] = (accumulate ? to[i] : 0) + Σ over parts of partial[part, i], in f32, rounded once. `partial` is f32 [parts, columns].
/// G is float or
/// __nv_bfloat16. One launch.
template <typename G>
void add_partial_sums(const float* partial, std::int64_t parts, std::int64_t columns, G* to, bool accumulate,
                      cudaStream_t stream);

}  // namespace consist::cuda
