// A model by its sizes: the text of a config.json, which --model takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace consist::readers {

/// Sizes of a decoder of the kind that there is (models/): RMSNorm, rotary embedding, SwiGLU.
struct ModelBySizes {
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
  double rope_theta = 10000;
  bool tied = false;
  bool qk_norm = false;   ///< of queries and keys, as Qwen3 has it
  bool qkv_bias = false;  ///< as Qwen2 has it
  double norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  double rope_factor = 0;    ///< of Llama 3.1's scaling of frequencies; 0: none
  std::int64_t experts = 0;  ///< of every layer; 0: dense
  std::int64_t choices = 0;
  std::int64_t expert_ffn = 0;
  bool normalized_choices = true;  ///< weights of a token's choices are divided by their sum
  double balance = 0;              ///< weight of the balance loss; 0: none
};

/// One line of JSON: a LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM or MixtralForCausalLM. Empty
/// for what none of them is, which `why` then says.
std::string config_json_of(const ModelBySizes& model, std::string& why);

}  // namespace consist::readers
