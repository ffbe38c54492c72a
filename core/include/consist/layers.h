// The core's ops as functions, for authors of models. Shapes: x is [batch, sequence, channels]; weights are [out, in].
#pragma once

#include <string>

#include "consist/builder.h"

namespace consist::layers {

/// Rows of `table` [vocabulary, channels] for `ids` [batch, sequence] (i32) → [batch, sequence, channels]. The row of
/// `padding_id` gets no gradient from here (PyTorch's padding_idx); -1: every row gets its own.
CONSIST_API TensorId embedding(Builder& b, TensorId ids, TensorId table, std::string name, std::int64_t padding_id = -1);

/// y = x wᵀ (+ bias) → [batch, sequence, out]. `bias` [out] or no_tensor.
CONSIST_API TensorId linear(Builder& b, TensorId x, TensorId weight, TensorId bias, std::string name);

struct Normed {
  TensorId y;         ///< rms_norm(sum) * weight
  TensorId residual;  ///< x + residual: the new residual stream
};
/// RMSNorm (Zhang & Sennrich, 2019) of x + residual over the last dimension; residual may be no_tensor (then the stream is x
/// itself).
CONSIST_API Normed rms_norm(Builder& b, TensorId x, TensorId residual, TensorId weight, double epsilon, std::string name);

/// Rotary position embedding (Su et al., 2021), half-split as in Hugging Face, of heads of `head_dim` channels in x
/// [batch, sequence, heads*head_dim], after an RMSNorm of each head with `norm_weight` [head_dim] if that is given (Qwen3's
/// qk-norm). `table` [sequence, head_dim] (f32): row p holds cos(p f_i) for i < head_dim/2, then sin(p f_i).
CONSIST_API TensorId rope(Builder& b, TensorId x, TensorId table, TensorId norm_weight, std::int64_t head_dim, double epsilon,
                          std::string name);

/// Causal softmax(q kᵀ / sqrt(head_dim)) v with grouped queries: q [batch, sequence, heads*head_dim], k and v [batch, sequence,
/// kv_heads*head_dim], heads a multiple of kv_heads. With `window` above 0 (sliding-window attention, Beltagy et al., 2020) a
/// position attends to itself and the window - 1 positions before it; 0: to all before it. ERRORS: UsageError if negative. With
/// `document_start` [batch, sequence] (i32: the position at which each token's document begins, 0 or more and not behind the token; the
/// dataset's field of that name) a token sees those of its document alone.
CONSIST_API TensorId attention(Builder& b, TensorId q, TensorId k, TensorId v, std::int64_t head_dim, std::string name,
                               std::int64_t window = 0, TensorId document_start = no_tensor);

/// silu(gate) * up (Shazeer, 2020).
CONSIST_API TensorId swiglu(Builder& b, TensorId gate, TensorId up, std::string name);

/// Sum over all positions of the cross-entropy of softmax(x wᵀ) against `targets` [batch, sequence] (i32; negative: ignored),
/// times `scale`; a scalar. Logits are made in chunks and never stored whole. With `mask` [batch, sequence] (i32: 0 ignores a target;
/// the dataset's field "loss_mask") the step's loss is the mean over the targets that count, of all micro-batches and ranks;
/// `scale` must then be 1 over the number of all targets, as Architecture::build gets it.
CONSIST_API TensorId lm_head_loss(Builder& b, TensorId x, TensorId weight, TensorId targets, double scale, std::string name,
                                  TensorId mask = no_tensor);

}  // namespace consist::layers
