// config.json of DeepSeek-V2 and DeepSeek-V3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "consist/rope_scaling.h"

namespace deepseek {

/// Field names as in config.json. Values that a file leaves out are transformers' for DeepSeek-V2, and of read_config() those for
/// DeepSeek-V3.
struct Config {
  std::int64_t version = 2;
  std::int64_t vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32,
               num_attention_heads = 32, max_position_embeddings = 2048, kv_lora_rank = 512, qk_nope_head_dim = 128,
               qk_rope_head_dim = 64, v_head_dim = 128, n_routed_experts = 64, moe_intermediate_size = 1407;
  std::int64_t q_lora_rank = 1536;         ///< 0: queries of one matrix
  std::int64_t first_k_dense_replace = 0;  ///< layers before the first with experts
  std::int64_t n_shared_experts = 2, num_experts_per_tok = 0;
  std::int64_t n_group = 1, topk_group = 1;  ///< groups of experts, and those of a token's choices (DeepSeek-V3)
  std::int64_t pad_token_id = -1;            ///< whose row of the embedding gets no gradient from there; -1: none
  double rms_norm_eps = 1e-6, rope_theta = 1e4, initializer_range = 0.02, routed_scaling_factor = 1;
  bool tie_word_embeddings = false, norm_topk_prob = false;
  consist::RopeScaling rope_scaling;

  bool has_experts() const { return first_k_dense_replace < num_hidden_layers; }
  std::int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
};

/// ERRORS: DataError naming the field.
Config read_config(std::string_view text);

/// The text from which transformers loads the model.
std::string config_text(const Config& config);

}  // namespace deepseek
