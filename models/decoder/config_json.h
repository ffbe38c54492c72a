// Hugging Face's config.json.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "models/decoder/decoder.h"

namespace consist::decoder {

/// Settings that an entry of "architectures" implies: those that transformers fixes in code, and its defaults for fields that a
/// file omits.
struct Variant {
  enum class Experts { none, qwen3, mixtral };
  std::string_view architecture;           ///< "Qwen3ForCausalLM"
  std::string_view model_type;             ///< "qwen3"; transformers chooses the class by it, so a file's must not contradict
  std::string_view other_model_type = {};  ///< one more that files of this architecture may have
  bool qkv_bias = false;
  bool qk_norm = false;
  std::int64_t head_dim = 0;        ///< without "head_dim"; 0: hidden_size / num_attention_heads
  std::int64_t kv_heads = 0;        ///< without "num_key_value_heads"; 0: as many as queries have
  double rope_theta = 10000;        ///< without "rope_theta"
  double norm_epsilon = 1e-6;       ///< without "rms_norm_eps"
  Experts experts = Experts::none;  ///< the fields that say so
  std::int64_t expert_count = 0;    ///< without a field that says how many; 0: the model is dense
  bool has_window_switch = true;    ///< "sliding_window" counts only if "use_sliding_window" is true
};

/// Reads a config.json by the first of its "architectures" that is among `variants`. Fields that do not change the computation
/// are ignored; one that does and is not understood is a DataError by name.
Config parse_config_json(std::string_view json, std::span<const Variant> variants);

/// The config.json that transformers loads the model from.
std::string to_config_json(const Config& config);

}  // namespace consist::decoder
