// The core's ops as functions, for authors of models. Shapes: x is [batch, sequence, channels]; weights are [out, in].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consist/attention_scores.h"
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

/// LayerNorm (Ba et al., 2016) of x over the last dimension, by expressions: (x - mean) / sqrt(variance + epsilon) * weight
/// (+ bias). `weight` [channels], `bias` [channels] or no_tensor.
CONSIST_API TensorId layer_norm(Builder& b, TensorId x, TensorId weight, TensorId bias, double epsilon, const std::string& name);

/// Radians per position of each pair of channels of a head, base^(−2i/head_dim), in f32 as transformers computes them.
CONSIST_API std::vector<float> rope_frequencies(std::int64_t head_dim, double base);

/// The table that rope() takes, [sequence, 2 · frequencies], in f32 as transformers computes it. Its elements have `factor`
/// (RopeScaling::table_factor()).
CONSIST_API TensorId rope_table(Builder& b, std::string name, std::int64_t sequence, std::vector<float> frequencies,
                                double factor = 1);

/// Rotary position embedding (Su et al., 2021), half-split as in Hugging Face, of heads of `head_dim` channels in x
/// [batch, sequence, heads*head_dim], after an RMSNorm of each head with `norm_weight` [head_dim] if that is given (Qwen3's
/// qk-norm). `table` [sequence, head_dim] (f32): row p holds cos(p f_i) for i < head_dim/2, then sin(p f_i). With a narrower
/// table the first channels of each head are turned, as many as a row has, and the others stay (GPT-NeoX, Black et al., 2022).
/// ERRORS: ProgramError for a narrower table beside a norm_weight.
CONSIST_API TensorId rope(Builder& b, TensorId x, TensorId table, TensorId norm_weight, std::int64_t head_dim, double epsilon,
                          const std::string& name);

/// Causal softmax(q kᵀ · scale) v with grouped queries: q [batch, sequence, heads*head_dim], k [batch, sequence,
/// kv_heads*head_dim], heads a multiple of kv_heads, v as k or with heads of another size (latent attention, DeepSeek-AI, 2024),
/// which those of the result then have. With `window` above 0 (sliding-window attention, Beltagy et al., 2020) a
/// position attends to itself and the window - 1 positions before it; 0: to all before it. ERRORS: UsageError if negative. With
/// `document_start` [batch, sequence] (i32: the position at which each token's document begins, 0 or more and not behind the
/// token; the dataset's field of that name) a token sees those of its document alone. `scores`: the scale, 1/sqrt(head_dim) by
/// default, and a soft-cap. ERRORS: UsageError if one of them is negative.
CONSIST_API TensorId attention(Builder& b, TensorId q, TensorId k, TensorId v, std::int64_t head_dim, std::string name,
                               std::int64_t window = 0, TensorId document_start = no_tensor, AttentionScores scores = {});

/// silu(gate) * up (Shazeer, 2020).
CONSIST_API TensorId swiglu(Builder& b, TensorId gate, TensorId up, std::string name);

/// `f` of the elements of `inputs`, as consist/expression.h states it, with one result: "gelu_tanh(a)*b", "1+a", "a*b[c]". An
/// input of which nothing is left, since its factor is 0, is left out. It has a gradient by tensors of the output's shape, by
/// vectors of channels and by columns of rows. ERRORS: ProgramError.
CONSIST_API TensorId map(Builder& b, std::string_view f, std::vector<TensorId> inputs, std::string name);

enum class Reduction : std::uint8_t { sum, mean, max, logsumexp };
/// `f`, as for map(), over the channels of each row → f32 [batch, sequence, 1], which map() reads as a[r]: "a*a" of {x}. The
/// largest has a gradient of "a" alone. ERRORS: ProgramError.
CONSIST_API TensorId reduce(Builder& b, Reduction by, std::string_view f, std::vector<TensorId> inputs, std::string name);

/// The same without the dimension of channels: f32 [batch, sequence], as targets and fields of the dataset are; of these
/// f32 [batch], a sum over each sequence.
CONSIST_API TensorId reduce_rows(Builder& b, Reduction by, std::string_view f, std::vector<TensorId> inputs, std::string name);

/// `f` of all elements added up, a scalar in f32. It may be the loss that Architecture::build or Loss::build returns.
CONSIST_API TensorId total(Builder& b, std::string_view f, std::vector<TensorId> inputs, std::string name);

/// log softmax(logits) at the target of each token: `logits` [batch, sequence, vocabulary], such as linear() makes them of a
/// model's head, `targets` [batch, sequence] (i32; 0 where negative) → f32 [batch, sequence].
CONSIST_API TensorId log_probability(Builder& b, TensorId logits, TensorId targets, const std::string& name);

/// Cuts the channels of each head of x [batch, sequence, heads*head_dim] into parts of `widths` channels, which add up to
/// head_dim: part i is [batch, sequence, heads*widths[i]]. With head_dim channels in all, slices of the channels. ERRORS:
/// ProgramError.
CONSIST_API std::vector<TensorId> split(Builder& b, TensorId x, const std::vector<std::int64_t>& widths, const std::string& name);

/// The inverse: [batch, sequence, heads*head_dim], in which each head has its slice of every tensor of `own`, whose channels are
/// those of `heads` heads, and behind these all channels of every tensor of `shared`, the same for each head. ERRORS:
/// ProgramError.
CONSIST_API TensorId concat(Builder& b, std::vector<TensorId> own, std::int64_t heads, std::string name,
                            const std::vector<TensorId>& shared = {});

/// factor * x, whatever the shape of x; rounded once.
CONSIST_API TensorId scaled(Builder& b, TensorId x, double factor, std::string name);

/// A mixture of experts (Shazeer et al., 2017) of gated linears: each token goes to `choices` of them.
struct Mixture {
  TensorId router = no_tensor;   ///< [experts, channels]
  TensorId gate_up = no_tensor;  ///< [experts, 2 ffn, channels]: of each expert the rows of gate_proj, then those of up_proj
  TensorId down = no_tensor;     ///< [experts, channels, ffn]
  std::int64_t choices = 1;      ///< experts of each token (top-k)
  bool normalize = true;         ///< the weights of a token's choices are divided by their sum
  /// Weights are sigmoids of the logits instead of their softmax (DeepSeek-V3). Only then there may be what follows.
  bool sigmoid = false;
  TensorId bias = no_tensor;  ///< [experts], a parameter that is added to the sigmoids for the choice alone: nothing trains it
  /// Choices come from `kept_groups` of equal groups of experts: those whose two best experts sum to most.
  std::int64_t groups = 1, kept_groups = 1;
};
struct Mixed {
  TensorId y;           ///< [batch, sequence, channels]
  TensorId statistics;  ///< f32 [2 experts + 1]: choices per expert, sums of probabilities, the sum of squared logsumexps
};
CONSIST_API Mixed mixture_of_experts(Builder& b, TensorId x, const Mixture& mixture, const std::string& name);

/// Adds the balance loss (Fedus et al., 2022) and the z-loss (Zoph et al., 2022) of routers to Program::outputs:
/// `balance` times Σ over experts of choices times probabilities, plus `z` times the squares. `statistics` are those of
/// mixture_of_experts(), added up over all routers. `count` is a factor of the loss, a scalar. Where targets are masked, it is
/// the number of the micro-batch's targets that count (count_targets of masked_targets(); not the output "loss_count", which is
/// summed over ranks in place), and the step is divided by the sum of these.
CONSIST_API void add_balance_loss(Builder& b, TensorId statistics, double balance, double z, std::string name,
                                  TensorId count = no_tensor);

/// Ignores the targets whose `mask` [batch, sequence] (i32) is 0. The number of the others becomes the output "loss_count", so
/// that the step's loss is their mean. lm_head_loss() does the same if it gets the mask; call this if the count is needed
/// earlier.
CONSIST_API TensorId masked_targets(Builder& b, TensorId targets, TensorId mask, std::string name);

/// Sum over all positions of the cross-entropy of softmax(x wᵀ) against `targets` [batch, sequence] (i32; negative: ignored),
/// times `scale`; a scalar. Logits are made in chunks and never stored whole. With `mask` [batch, sequence] (i32: 0 ignores a
/// target; the dataset's field "loss_mask") the step's loss is the mean over the targets that count, of all micro-batches and
/// ranks; `scale` must then be 1 over the number of all targets, as Architecture::build gets it.
CONSIST_API TensorId lm_head_loss(Builder& b, TensorId x, TensorId weight, TensorId targets, double scale, std::string name,
                                  TensorId mask = no_tensor);

/// By token, f32 [batch, sequence]: the logarithm of the softmax at the target, 0 where that is negative, and the logarithm of its
/// denominator, so that log_probability = logit - denominator.
struct LogProbability {
  TensorId log_probability, denominator;
};
/// log_probability() of logits x wᵀ that are made in chunks and never stored whole, and once more for the gradient, which saves
/// memory and takes a third of the head's time.
CONSIST_API LogProbability lm_head_log_probability(Builder& b, TensorId x, TensorId weight, TensorId targets,
                                                   const std::string& name);

}  // namespace consist::layers
