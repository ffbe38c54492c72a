#include "config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "consist/error.h"

namespace deepseek {
namespace {

using consist::DataError;
using nlohmann::json;

/// visit(field, value, least)
template <typename C, typename Visit>
void for_each_integer(C& c, Visit visit) {
  visit("vocab_size", c.vocab_size, 1);
  visit("hidden_size", c.hidden_size, 1);
  visit("intermediate_size", c.intermediate_size, 1);
  visit("num_hidden_layers", c.num_hidden_layers, 1);
  visit("num_attention_heads", c.num_attention_heads, 1);
  visit("max_position_embeddings", c.max_position_embeddings, 1);
  visit("kv_lora_rank", c.kv_lora_rank, 1);
  visit("qk_nope_head_dim", c.qk_nope_head_dim, 1);
  visit("qk_rope_head_dim", c.qk_rope_head_dim, 2);
  visit("v_head_dim", c.v_head_dim, 1);
  visit("n_routed_experts", c.n_routed_experts, 1);
  visit("moe_intermediate_size", c.moe_intermediate_size, 1);
  visit("first_k_dense_replace", c.first_k_dense_replace, 0);
}

template <typename C, typename Visit>
void for_each_real(C& c, Visit visit) {
  visit("rms_norm_eps", c.rms_norm_eps);
  visit("rope_theta", c.rope_theta);
  visit("initializer_range", c.initializer_range);
  visit("routed_scaling_factor", c.routed_scaling_factor);
}

bool is_there(const json& file, const char* field) {
  return file.contains(field) && !file[field].is_null();
}

[[noreturn]] void refuse(const json& file, const char* field, const std::string& wanted) {
  throw DataError(std::string("\"") + field + "\" is " + file[field].dump() + "; " + wanted);
}

std::int64_t integer(const json& file, const char* field, std::int64_t least, std::int64_t otherwise) {
  constexpr std::int64_t most = 1 << 24;
  if (!is_there(file, field)) return otherwise;
  if (!file[field].is_number_integer() || file[field] < least || file[field] > most)
    refuse(file, field, "it must be an integer between " + std::to_string(least) + " and " + std::to_string(most));
  return file[field].get<std::int64_t>();
}

bool boolean(const json& file, const char* field, bool otherwise) {
  if (!is_there(file, field)) return otherwise;
  if (!file[field].is_boolean()) refuse(file, field, "it must be true or false");
  return file[field].get<bool>();
}

/// Fields that change what is computed, with the one value of each that is supported.
void check_fixed_fields(const json& file, std::int64_t version) {
  const std::pair<const char*, json> fixed[] = {{"hidden_act", "silu"},
                                                {"attention_bias", false},
                                                {"attention_dropout", 0.0},
                                                {"mlp_bias", false},
                                                {"rope_interleave", true},
                                                {"topk_method", version == 2 ? "greedy" : "noaux_tc"},
                                                {"scoring_func", version == 2 ? "softmax" : "sigmoid"}};
  for (const auto& [field, supported] : fixed) {
    if (is_there(file, field) && file[field] != supported) refuse(file, field, "this plugin supports " + supported.dump());
  }
}

/// visit(field, value)
template <typename Y, typename Visit>
void for_each_of_yarn(Y& yarn, Visit visit) {
  visit("factor", yarn.factor);
  visit("beta_fast", yarn.beta_fast);
  visit("beta_slow", yarn.beta_slow);
  visit("mscale", yarn.mscale);
  visit("mscale_all_dim", yarn.mscale_all_dim);
}

Yarn read_yarn(const json& file, std::int64_t positions) {
  Yarn yarn;
  if (!is_there(file, "rope_scaling")) return yarn;
  const json& scaling = file["rope_scaling"];
  const char* const wanted =
      R"(this plugin supports null and objects whose "rope_type" is "yarn", without "attention_factor" and "truncate")";
  if (!scaling.is_object() || scaling.value("rope_type", scaling.value("type", "")) != "yarn" ||
      is_there(scaling, "attention_factor") || is_there(scaling, "truncate"))
    refuse(file, "rope_scaling", wanted);
  for_each_of_yarn(yarn, [&](const char* field, double& value) {
    if (!is_there(scaling, field)) return;
    if (!scaling[field].is_number() || !(scaling[field].get<double>() >= 0))
      refuse(scaling, field, "it must be a number, not below 0");
    value = scaling[field].get<double>();
  });
  if (yarn.factor < 1) refuse(file, "rope_scaling", "its \"factor\" must be at least 1");
  if (yarn.beta_fast == 0) yarn.beta_fast = Yarn().beta_fast;  // as transformers does
  if (yarn.beta_slow == 0) yarn.beta_slow = Yarn().beta_slow;
  yarn.original_max_position_embeddings = integer(scaling, "original_max_position_embeddings", 1, positions);
  return yarn;
}

/// The values that transformers takes for DeepSeek-V3 where a file says nothing.
Config v3() {
  Config c{.version = 3, .vocab_size = 129280, .hidden_size = 7168, .intermediate_size = 18432, .num_hidden_layers = 61};
  c.num_attention_heads = 128;
  c.max_position_embeddings = 4096;
  c.n_routed_experts = 256;
  c.moe_intermediate_size = 2048;
  c.first_k_dense_replace = 3;
  c.n_shared_experts = 1;
  c.num_experts_per_tok = 8;
  c.routed_scaling_factor = 2.5;
  c.n_group = 8;
  c.topk_group = 4;
  c.norm_topk_prob = true;
  return c;
}

std::int64_t version_of(const json& file) {
  if (!is_there(file, "model_type") || file["model_type"] == "deepseek_v2") return 2;
  if (file["model_type"] != "deepseek_v3") refuse(file, "model_type", R"(this plugin knows "deepseek_v2" and "deepseek_v3")");
  return 3;
}

/// Groups of DeepSeek-V3's experts, each with two experts at least, which its sum takes.
void check_groups(const Config& config) {
  const auto field = [](const char* name, std::int64_t value) {
    return "\"" + std::string(name) + "\" is " + std::to_string(value);
  };
  const std::int64_t experts = config.n_routed_experts, groups = config.n_group;
  if (experts % groups != 0 || experts / groups < 2)
    throw DataError(field("n_group", groups) + "; groups must have as many of the experts, of which " +
                    field("n_routed_experts", experts) + ", and two at least");
  if (config.topk_group > groups)
    throw DataError(field("topk_group", config.topk_group) + "; it must be at most \"n_group\", which is " +
                    std::to_string(groups));
  if (config.num_experts_per_tok > experts / groups * config.topk_group)
    throw DataError(field("num_experts_per_tok", config.num_experts_per_tok) + "; the groups that are kept have only " +
                    std::to_string(experts / groups * config.topk_group) + " experts");
}

void check_experts(const json& file, const Config& config) {
  if (config.dense_layers() == config.num_hidden_layers) return;
  if (config.num_experts_per_tok < 1 || config.num_experts_per_tok > config.n_routed_experts) {
    throw DataError("\"num_experts_per_tok\" is " + std::to_string(config.num_experts_per_tok) +
                    "; it must be between 1 and \"n_routed_experts\", which is " + std::to_string(config.n_routed_experts));
  }
  if (config.version == 3) return check_groups(config);
  if (is_there(file, "norm_topk_prob") && file["norm_topk_prob"] != false)
    refuse(file, "norm_topk_prob", "transformers leaves that out for this model, so this plugin supports false");
}

}  // namespace

Config read_config(std::string_view text) {
  const json file = json::parse(text, nullptr, false);
  if (!file.is_object()) throw DataError("config.json is no JSON object");
  for (const char* field : {"vocab_size", "hidden_size", "num_hidden_layers"}) {
    if (!is_there(file, field)) throw DataError(std::string("\"") + field + "\" is missing");
  }
  const std::int64_t version = version_of(file);
  check_fixed_fields(file, version);
  Config config = version == 3 ? v3() : Config{};
  for_each_integer(
      config, [&](const char* field, std::int64_t& value, std::int64_t least) { value = integer(file, field, least, value); });
  for_each_real(config, [&](const char* field, double& value) {
    if (!is_there(file, field)) return;
    if (!file[field].is_number() || !(file[field].get<double>() > 0)) refuse(file, field, "it must be a number above 0");
    value = file[field].get<double>();
  });
  config.num_experts_per_tok = integer(file, "num_experts_per_tok", 1, config.num_experts_per_tok);
  // A file that says null has none of these; one that says nothing has transformers' default.
  if (file.contains("q_lora_rank")) config.q_lora_rank = integer(file, "q_lora_rank", 1, 0);
  if (file.contains("n_shared_experts")) config.n_shared_experts = integer(file, "n_shared_experts", 1, 0);
  if (version == 3) {
    config.n_group = integer(file, "n_group", 1, config.n_group);
    config.topk_group = integer(file, "topk_group", 1, config.topk_group);
    config.norm_topk_prob = boolean(file, "norm_topk_prob", config.norm_topk_prob);
  }
  config.pad_token_id = integer(file, "pad_token_id", 0, -1);
  if (config.pad_token_id >= config.vocab_size) refuse(file, "pad_token_id", "it must be less than \"vocab_size\"");
  config.tie_word_embeddings = boolean(file, "tie_word_embeddings", false);
  if (integer(file, "num_key_value_heads", 1, config.num_attention_heads) != config.num_attention_heads)
    refuse(file, "num_key_value_heads", "latent attention has as many as \"num_attention_heads\"");
  if (config.qk_rope_head_dim % 2 != 0) refuse(file, "qk_rope_head_dim", "rotary embedding needs an even one");
  config.yarn = read_yarn(file, config.max_position_embeddings);
  check_experts(file, config);
  return config;
}

std::string config_text(const Config& config) {
  const std::string version = std::to_string(config.version);
  nlohmann::ordered_json file{{"architectures", {"DeepseekV" + version + "ForCausalLM"}},
                              {"model_type", "deepseek_v" + version},
                              {"hidden_act", "silu"},
                              {"attention_bias", false},
                              {"tie_word_embeddings", config.tie_word_embeddings}};
  for_each_integer(config, [&](const char* field, std::int64_t value, std::int64_t) { file[field] = value; });
  for_each_real(config, [&](const char* field, double value) { file[field] = value; });
  const auto or_null = [](std::int64_t value, std::int64_t none) {
    return value == none ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
  };
  file["num_key_value_heads"] = config.num_attention_heads;
  file["q_lora_rank"] = or_null(config.q_lora_rank, 0);
  file["n_shared_experts"] = or_null(config.n_shared_experts, 0);
  file["num_experts_per_tok"] = or_null(config.num_experts_per_tok, 0);
  if (config.version == 3) {
    file["n_group"] = config.n_group;
    file["topk_group"] = config.topk_group;
    file["norm_topk_prob"] = config.norm_topk_prob;
  }
  file["pad_token_id"] = or_null(config.pad_token_id, -1);
  if (config.yarn.any()) {
    file["rope_scaling"] = {{"rope_type", "yarn"},
                            {"original_max_position_embeddings", config.yarn.original_max_position_embeddings}};
    for_each_of_yarn(config.yarn, [&](const char* field, double value) { file["rope_scaling"][field] = value; });
  }
  return file.dump(2) + "\n";
}

}  // namespace deepseek
