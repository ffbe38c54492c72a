#include "launch/import/common/model_by_sizes.h"

#include <nlohmann/json.hpp>

namespace consist::readers {

std::string config_json_of(const ModelBySizes& m, std::string& why) {
  const bool mixtral = m.experts > 0 && !m.qk_norm;
  if (m.qk_norm && m.qkv_bias) why = "a norm of queries and keys together with biases on them";
  if (m.experts > 0 && m.qkv_bias) why = "experts together with biases on q, k and v";
  if (mixtral && !m.normalized_choices)
    why = "experts whose weights are not divided by their sum, without a norm of queries and keys";
  if (!why.empty()) return {};
  const char* architecture = mixtral         ? "MixtralForCausalLM"
                             : m.experts > 0 ? "Qwen3MoeForCausalLM"
                             : m.qk_norm     ? "Qwen3ForCausalLM"
                             : m.qkv_bias    ? "Qwen2ForCausalLM"
                                             : "LlamaForCausalLM";
  nlohmann::ordered_json json{{"architectures", {architecture}},
                              {"vocab_size", m.vocabulary},
                              {"hidden_size", m.hidden},
                              {"num_hidden_layers", m.layers},
                              {"num_attention_heads", m.heads},
                              {"num_key_value_heads", m.kv_heads},
                              {"head_dim", m.head_dim},
                              {"intermediate_size", mixtral ? m.expert_ffn : m.ffn},
                              {"max_position_embeddings", m.positions},
                              {"rms_norm_eps", m.norm_epsilon},
                              {"initializer_range", m.initializer_range},
                              {"tie_word_embeddings", m.tied},
                              {"rope_theta", m.rope_theta}};
  if (m.rope_factor > 0) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", m.rope_factor},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  }
  if (m.experts == 0) return json.dump();
  json[mixtral ? "num_local_experts" : "num_experts"] = m.experts;
  json["num_experts_per_tok"] = m.choices;
  json["router_aux_loss_coef"] = m.balance;
  json["output_router_logits"] = m.balance > 0;
  if (!mixtral) {
    json["moe_intermediate_size"] = m.expert_ffn;
    json["norm_topk_prob"] = m.normalized_choices;
  }
  return json.dump();
}

}  // namespace consist::readers
