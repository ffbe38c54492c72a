#include "config.h"

#include <nlohmann/json.hpp>

#include "consist/config_fields.h"
#include "consist/error.h"

namespace deepseek {
namespace {

using consist::ConfigFields;
using consist::DataError;
using nlohmann::json;

/// visit(field, value), or visit(field, value, least)
template <typename C, typename Visit>
void for_each_field(C& c, const Visit& visit) {
  visit("vocab_size", c.vocab_size);
  visit("hidden_size", c.hidden_size);
  visit("intermediate_size", c.intermediate_size);
  visit("num_hidden_layers", c.num_hidden_layers);
  visit("num_attention_heads", c.num_attention_heads);
  visit("max_position_embeddings", c.max_position_embeddings);
  visit("kv_lora_rank", c.kv_lora_rank);
  visit("qk_nope_head_dim", c.qk_nope_head_dim);
  visit("qk_rope_head_dim", c.qk_rope_head_dim, 2);
  visit("v_head_dim", c.v_head_dim);
  visit("n_routed_experts", c.n_routed_experts);
  visit("num_experts_per_tok", c.num_experts_per_tok);
  visit("moe_intermediate_size", c.moe_intermediate_size);
  visit("first_k_dense_replace", c.first_k_dense_replace, 0);
  visit("rms_norm_eps", c.rms_norm_eps);
  visit("rope_theta", c.rope_theta);
  visit("initializer_range", c.initializer_range);
  visit("routed_scaling_factor", c.routed_scaling_factor);
  visit("tie_word_embeddings", c.tie_word_embeddings);
  if (c.version == 2) return;
  visit("n_group", c.n_group);
  visit("topk_group", c.topk_group);
  visit("norm_topk_prob", c.norm_topk_prob);
}

/// transformers' values for what a file leaves out.
Config defaults(const ConfigFields& f) {
  Config c;
  const std::string type = f.text_or("model_type", "deepseek_v2");
  if (type == "deepseek_v2") return c;
  if (type != "deepseek_v3") f.refuse("model_type", R"(this plugin knows "deepseek_v2" and "deepseek_v3")");
  c.version = 3;
  c.vocab_size = 129280, c.hidden_size = 7168, c.intermediate_size = 18432, c.num_hidden_layers = 61;
  c.num_attention_heads = 128, c.max_position_embeddings = 4096, c.n_routed_experts = 256, c.moe_intermediate_size = 2048;
  c.first_k_dense_replace = 3, c.n_shared_experts = 1, c.num_experts_per_tok = 8, c.routed_scaling_factor = 2.5;
  c.n_group = 8, c.topk_group = 4, c.norm_topk_prob = true;
  return c;
}

/// Each of DeepSeek-V3's groups has two experts at least, which its sum takes.
void check_experts(const ConfigFields& f, const Config& c) {
  if (!c.has_experts()) return;
  const std::int64_t of_group = c.n_routed_experts / c.n_group;
  if (c.version == 2) f.only("norm_topk_prob", false);  // transformers leaves it out for this model
  if (c.num_experts_per_tok < 1 || c.num_experts_per_tok > c.n_routed_experts)
    f.refuse("num_experts_per_tok",
             "it must be between 1 and \"n_routed_experts\", which is " + std::to_string(c.n_routed_experts));
  if (c.version == 2) return;
  if (c.n_routed_experts % c.n_group != 0 || of_group < 2)
    f.refuse("n_group", "groups must have as many of the experts, \"n_routed_experts\", and two at least");
  if (c.topk_group > c.n_group) f.refuse("topk_group", "it must be at most \"n_group\", which is " + std::to_string(c.n_group));
  if (c.num_experts_per_tok > of_group * c.topk_group)
    f.refuse("num_experts_per_tok", "the groups that are kept have only " + std::to_string(of_group * c.topk_group) + " experts");
}

}  // namespace

Config read_config(std::string_view text) {
  const json file = consist::parse_config(text);
  const ConfigFields f(file);
  for (const char* field : {"vocab_size", "hidden_size", "num_hidden_layers"}) f.require(field);
  Config c = defaults(f);
  for (const auto& [field, supported] : {std::pair<const char*, json>{"hidden_act", "silu"},
                                         {"attention_bias", false},
                                         {"attention_dropout", 0.0},
                                         {"mlp_bias", false},
                                         {"rope_interleave", true},
                                         {"topk_method", c.version == 2 ? "greedy" : "noaux_tc"},
                                         {"scoring_func", c.version == 2 ? "softmax" : "sigmoid"}})
    f.only(field, supported);
  for_each_field(c, [&](const char* field, auto& value, auto... least) { f.read(field, value, least...); });
  // A file that says null has none of these; one that says nothing has transformers' default.
  if (f.is_null("q_lora_rank")) c.q_lora_rank = 0;
  if (f.is_null("n_shared_experts")) c.n_shared_experts = 0;
  f.read("q_lora_rank", c.q_lora_rank);
  f.read("n_shared_experts", c.n_shared_experts);
  f.read("pad_token_id", c.pad_token_id, 0);
  if (c.pad_token_id >= c.vocab_size) f.refuse("pad_token_id", "it must be less than \"vocab_size\"");
  if (c.qk_rope_head_dim % 2 != 0) f.refuse("qk_rope_head_dim", "rotary embedding needs an even one");
  f.only("num_key_value_heads", c.num_attention_heads);
  if (f.has("rope_scaling"))
    c.rope_scaling = consist::read_rope_scaling(f["rope_scaling"], "rope_scaling", c.max_position_embeddings);
  check_experts(f, c);
  return c;
}

std::string config_text(const Config& config) {
  const std::string version = std::to_string(config.version);
  nlohmann::ordered_json file{{"architectures", {"DeepseekV" + version + "ForCausalLM"}},
                              {"model_type", "deepseek_v" + version},
                              {"hidden_act", "silu"},
                              {"attention_bias", false},
                              {"num_key_value_heads", config.num_attention_heads}};
  for_each_field(config, [&](const char* field, const auto& value, auto...) { file[field] = value; });
  const auto or_null = [&](const char* field, std::int64_t value, std::int64_t none) {
    file[field] = value == none ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
  };
  or_null("q_lora_rank", config.q_lora_rank, 0);
  or_null("n_shared_experts", config.n_shared_experts, 0);
  or_null("num_experts_per_tok", config.num_experts_per_tok, 0);
  or_null("pad_token_id", config.pad_token_id, -1);
  consist::write_rope_scaling(config.rope_scaling, file);
  return file.dump(2) + "\n";
}

}  // namespace deepseek
