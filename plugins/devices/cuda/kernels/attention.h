// Attention has two kernels: cuDNN's for bf16, and one of our own for f32 and for what cuDNN refuses.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "plugins/devices/cuda/kernels/kernels.h"

namespace consist::cuda {

/// Elements from token to token of q, k and v, which may be columns of wider tensors.
struct TokenStrides {
  std::int64_t q, k, v;
};

/// Extents of an attention request: q, o [batch, sequence, heads, dim]; k, v [batch, sequence, kv_heads, dim]; lse f32 [batch,
/// heads, sequence].
struct AttentionShape {
  std::int64_t batch, sequence, heads, kv_heads, dim;
  TokenStrides read;       ///< of q, k, v
  TokenStrides written{};  ///< of dq, dk, dv
  std::int64_t group() const { return heads / kv_heads; }
};

/// Our own: on the ordinary arithmetic units, in f32, deterministic, for head sizes up to `longest_head`. Null for other dtypes.
Made make_tiled_attention(DType type, const AttentionShape& shape, const KernelSettings& s);
Made make_tiled_attention_grad(DType type, const AttentionShape& shape, const KernelSettings& s);
inline constexpr std::int64_t longest_head = 128;

}  // namespace consist::cuda
