// Attention has three kernels: cuDNN's for bf16, and our own for f32 and for what cuDNN refuses in bf16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "consist/attention_scores.h"
#include "plugins/devices/cuda/kernels/common/kernels.h"

namespace consist::cuda {

/// Elements from token to token of q, k and v, which may be columns of wider tensors.
struct TokenStrides {
  std::int64_t q, k, v;
};

enum class Direction { forward, backward };

/// Extents of attention: q [batch, sequence, heads, dim]; k [batch, keys, kv_heads, dim]; v and o as k and q, of value_dim; lse
/// f32 [batch, heads, sequence]. Queries and keys are in order of position each.
struct AttentionShape {
  std::int64_t batch, sequence, keys, heads, kv_heads, dim, value_dim;
  TokenStrides read;       ///< of q, k, v
  AttentionScores scores;  ///< with their scale, which is not 0
  TokenStrides written{};  ///< of dq, dk, dv
  /// Tokens from one sequence of the batch to the next in memory, of q, o, do and dq, and of k, v, dk and dv.
  std::int64_t query_tokens = sequence, key_tokens = keys;
  /// Query i sees the keys 0 … i + shift that there are: by default the last query sees all, the one before it all but the last,
  /// and so on, so that queries may be the last stretch of a sequence.
  std::int64_t shift = keys - sequence;
  std::int64_t window = 0;  ///< query i sees only the last so many of the keys up to i + shift; 0: all
  /// Another input, behind those of the op without documents, i32 [batch, sequence], `query_tokens` from one sequence to the
  /// next: query i sees no key in front of that position. Key 0 is at `first_position`.
  bool documents = false;
  std::int64_t first_position = 0;
  bool sees_all() const { return shift >= keys - 1 && window == 0 && !documents; }
  std::int64_t group() const { return heads / kv_heads; }
};

/// The fastest kernel for such tensors of `type`. Inputs and outputs are those of the ops attention and attention_grad; of their
/// buffers nothing but `data` counts. ERRORS: UsageError for a shape for which there is none.
Made make_attention_of(DType type, const AttentionShape& shape, Direction direction, const KernelSettings& s);

/// True if queries, input `queries` of the op, are a rank's two chunks of a sequence in zigzag order of which nothing but the
/// order hides keys.
bool has_blocks(const KernelRequest& r, const AttentionShape& shape, std::size_t queries);

/// Kernel for such queries: one call for each of their blocks (consist/attention_blocks.h). ERRORS: as make_attention_of().
Made make_attention_of_blocks(const KernelRequest& r, Direction direction, const KernelSettings& s);

/// Kernel for other queries that are a part of the sequence, or a sequence in zigzag order (Program::zigzag): keys and values are
/// brought into order of position, then every stretch of queries has a kernel of make_attention_of(). ERRORS: UsageError as that;
/// for queries of more than two stretches.
Made make_attention_of_stretches(const KernelRequest& r, Direction direction, const KernelSettings& s);

/// Kernel for queries at a position (input 4 of the op), beside a KV cache; heeds windows and caps. ERRORS: UsageError for
/// head_dim or value_dim > 256.
Made make_cache_attention(const KernelRequest& r, const KernelSettings& s);

/// For attention to a part of the sequence. ERRORS: UsageError where values have a size of their own, naming it.
void require_values_as_keys(const KernelRequest& r);

/// Our own, deterministic, for head sizes up to `longest_head`, and values as large as keys: in f32 on the ordinary arithmetic
/// units, in bf16 on the tensor cores.
Made make_tiled_attention(const AttentionShape& shape, const KernelSettings& s);
Made make_tiled_attention_grad(const AttentionShape& shape, const KernelSettings& s);
Made make_tensor_core_attention(const AttentionShape& shape);
Made make_tensor_core_attention_grad(const AttentionShape& shape);
inline constexpr std::int64_t longest_head = 128;

}  // namespace consist::cuda
