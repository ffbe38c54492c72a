// Gemma 3's config.json, of its text model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gemma {

/// Field names as in config.json, and transformers' values for those that a file leaves out.
struct Config {
  std::int64_t vocab_size = 262208, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 26, num_attention_heads = 8,
               num_key_value_heads = 4, head_dim = 256, max_position_embeddings = 131072, query_pre_attn_scalar = 256,
               sliding_window = 4096;
  std::int64_t pad_token_id = 0;  ///< whose row of the embedding gets no gradient from there; -1: none
  double rms_norm_eps = 1e-6, rope_theta = 1e6, rope_local_base_freq = 1e4, initializer_range = 0.02;
  std::vector<bool> slides;  ///< by layer: it sees `sliding_window` positions; the others see all
};

/// Five layers that slide, then one that sees all, and so on.
std::vector<bool> usual_pattern(std::int64_t layers, std::int64_t period = 6);

/// ERRORS: DataError naming the field.
Config read_config(std::string_view text);

/// The text from which transformers loads the model.
std::string config_text(const Config& config);

}  // namespace gemma
