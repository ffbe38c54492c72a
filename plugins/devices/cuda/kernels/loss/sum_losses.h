// The last step of a loss.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace consist::cuda {

/// loss = scale · sum of `count` losses (f32) in a fixed order, plus *before unless that is null; `before` may be `loss`.
void enqueue_sum_losses(const float* losses, std::int64_t count, float scale, const float* before, float* loss,
                        cudaStream_t stream);

}  // namespace consist::cuda
