// Some of the tokens of attention's tensors, as kernels of whole sequences take them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/common/scratch.h"

namespace consist::cuda {

/// A tensor from its token `first` on, if tokens lie `stride` elements of `size` bytes apart.
inline Buffer tokens_from(const Buffer& whole, std::int64_t first, std::int64_t stride, std::int64_t size) {
  return buffer_at(whole.as<char>() + first * stride * size);
}

/// Starts of documents (input `index`) from token `first` on; empty where there are no documents.
inline Buffer starts_from(std::span<const Buffer> in, std::size_t index, bool documents, std::int64_t first) {
  return documents ? buffer_at(in[index].as<std::int32_t>() + first) : Buffer{};
}

/// The tokens [first, first + count) of lse, f32 [lines, tokens], as a tensor [lines, count] of their own.
struct LseTokens {
  std::int64_t lines, tokens, first, count;

  void copy_out(const float* lse, float* own, cudaStream_t stream) const {
    copy(own, bytes(count), lse + first, bytes(tokens), stream);
  }
  void copy_back(const float* own, float* lse, cudaStream_t stream) const {
    copy(lse + first, bytes(tokens), own, bytes(count), stream);
  }

 private:
  static std::size_t bytes(std::int64_t values) { return static_cast<std::size_t>(values) * sizeof(float); }
  void copy(float* to, std::size_t to_pitch, const float* from, std::size_t from_pitch, cudaStream_t stream) const {
    cuda::check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, bytes(count), static_cast<std::size_t>(lines),
                                  cudaMemcpyDeviceToDevice, stream),
                "copy attention's statistics");
  }
};

}  // namespace consist::cuda
