#include "models/decoder/config_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "consist/config_fields.h"
#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"

namespace consist::decoder {
namespace {

using Json = nlohmann::json;

using Fields = ConfigFields;

[[noreturn]] void not_supported(const std::string& field, const std::string& value, const std::string& instead) {
  throw DataError("the field \"" + field + "\" is " + value + ", which is not supported" +
                  (instead.empty() ? "" : "; " + instead));
}

/// Experts of a layer, 0: none. transformers 4 writes "num_local_experts" for Mixtral and "num_experts" for Qwen3, transformers 5
/// the former for both, and reads either.
std::int64_t count_of_experts(const Fields& f, const Variant& variant) {
  if (variant.experts == Variant::Experts::none) return 0;
  const bool is_local = f.has("num_local_experts"), is_plain = f.has("num_experts");
  if (is_local && is_plain && f.integer("num_local_experts") != f.integer("num_experts"))
    throw DataError("the fields \"num_experts\" (" + shown(f["num_experts"]) + ") and \"num_local_experts\" (" +
                    shown(f["num_local_experts"]) + ") contradict each other; correct the one that is wrong");
  if (!is_local && !is_plain) return variant.expert_count;
  const char* const field = is_local ? "num_local_experts" : "num_experts";
  const std::int64_t count = f.integer(field);
  if (count == 0 && variant.expert_count != 0) not_supported(field, "0", std::string(variant.architecture) + " has experts");
  return count;
}
bool has_experts(const Fields& f, const Variant& variant) {
  return count_of_experts(f, variant) != 0;
}

/// The layers with experts, and the other fields that transformers reads of them.
void parse_mixture(const Fields& f, const Variant& variant, Config& c) {
  if (!has_experts(f, variant)) return;
  MixtureConfig& m = c.mixture;
  const bool mixtral = variant.experts == Variant::Experts::mixtral;
  m.names = mixtral ? MixtureConfig::Names::mixtral : MixtureConfig::Names::qwen3;
  m.experts = count_of_experts(f, variant);
  m.choices = f.integer_or("num_experts_per_tok", mixtral ? 2 : 8);
  m.ffn = mixtral ? c.ffn : f.integer_or("moe_intermediate_size", 768);
  m.normalize = mixtral || f.boolean_or("norm_topk_prob", false);
  m.balance = f.number_or("router_aux_loss_coef", 0.001);
  m.trains_balance = f.boolean_or("output_router_logits", false);
  m.z = f.number_or("router_z_loss_coef", 0);
  m.sparse.assign(static_cast<std::size_t>(c.layers), true);
  if (mixtral) return;
  if (f.boolean_or("use_sliding_window", false))
    not_supported("use_sliding_window", "true", "with experts all layers attend to the whole sequence");
  const std::int64_t step = f.integer_or("decoder_sparse_step", 1);
  if (step < 1) throw DataError("the field \"decoder_sparse_step\" is " + std::to_string(step) + "; it must be at least 1");
  for (std::int64_t layer = 0; layer < c.layers; ++layer) m.sparse[static_cast<std::size_t>(layer)] = (layer + 1) % step == 0;
  if (!f.has("mlp_only_layers")) return;
  if (!f["mlp_only_layers"].is_array())
    not_supported("mlp_only_layers", shown(f["mlp_only_layers"]), "it must be a list of layers");
  for (const Json& layer : f["mlp_only_layers"]) {
    if (!layer.is_number_integer()) not_supported("mlp_only_layers", shown(f["mlp_only_layers"]), "it must be a list of layers");
    const auto index = layer.get<std::int64_t>();
    if (index >= 0 && index < c.layers) m.sparse[static_cast<std::size_t>(index)] = false;
  }
}

void write_mixture(const MixtureConfig& m, nlohmann::ordered_json& json) {
  const bool mixtral = m.names == MixtureConfig::Names::mixtral;
  json[mixtral ? "num_local_experts" : "num_experts"] = m.experts;
  json["num_experts_per_tok"] = m.choices;
  json["router_aux_loss_coef"] = m.balance;
  json["output_router_logits"] = m.trains_balance;
  if (m.z != 0) json["router_z_loss_coef"] = m.z;
  if (mixtral) return;
  json["moe_intermediate_size"] = m.ffn;
  json["norm_topk_prob"] = m.normalize;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = Json::array();
  for (std::size_t layer = 0; layer < m.sparse.size(); ++layer) {
    if (!m.sparse[layer]) json["mlp_only_layers"].push_back(layer);
  }
}

/// Fields that change the computation in ways this decoder does not know.
void refuse_unknown_computation(const Fields& f, const Variant& variant) {
  const std::string activation = f.text_or("hidden_act", "silu");
  if (activation != "silu") not_supported("hidden_act", in_quotes(activation), "supported is silu");
  if (f.boolean_or("mlp_bias", false)) not_supported("mlp_bias", "true", "");
  if (f.boolean_or("attention_bias", false) && !variant.qkv_bias) not_supported("attention_bias", "true", "");
  if (f.number_or("attention_dropout", 0) != 0) not_supported("attention_dropout", shown(f["attention_dropout"]), "set it to 0");
  if (!f.boolean_or("is_causal", true)) not_supported("is_causal", "false", "attention is causal");
  if (!variant.has_window_switch && (f.has("sliding_window") || f.boolean_or("use_sliding_window", false))) {
    const char* field = f.has("sliding_window") ? "sliding_window" : "use_sliding_window";
    not_supported(field, shown(f[field]), std::string(variant.architecture) + " attends to the whole sequence");
  }
  if (f.has("quantization_config")) not_supported("quantization_config", "given", "load unquantized weights");
  if (f.number_or("partial_rotary_factor", 1) != 1) not_supported("partial_rotary_factor", shown(f["partial_rotary_factor"]), "");
  for (const char* experts :
       {"n_shared_experts", "shared_expert_intermediate_size", "moe_layer_start_index", "router_jitter_noise"}) {
    if (f.has(experts) && f[experts] != 0) not_supported(experts, shown(f[experts]), "");
  }
  for (const char* experts :
       {"num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
    // A count of 0 is how some tools write that there are none.
    if (!has_experts(f, variant) && f.has(experts) && f[experts] != 0)
      not_supported(experts, shown(f[experts]),
                    std::string(variant.architecture) + " has no experts, or their number is missing");
  }
  for (const char* capping : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (f.has(capping)) not_supported(capping, shown(f[capping]), "");
  }
}

/// The layers that attend within a window, as transformers 4.57 reads it: where "use_sliding_window" is true, those that
/// "layer_types" names, without such a list those from "max_window_layers" on.
void parse_windows(const Fields& f, const Variant& variant, Config& c) {
  std::vector<bool> windowed;
  if (f.has("layer_types")) {
    if (!f["layer_types"].is_array()) not_supported("layer_types", shown(f["layer_types"]), "it must be a list of texts");
    for (const Json& type : f["layer_types"]) {
      if (type != "full_attention" && type != "sliding_attention") {
        not_supported("layer_types", shown(type), "supported are full_attention and sliding_attention");
      }
      windowed.push_back(type == "sliding_attention");
    }
    if (std::ssize(windowed) != c.layers) {
      throw DataError("the field \"layer_types\" lists " + std::to_string(windowed.size()) +
                      " layers, but \"num_hidden_layers\" is " + std::to_string(c.layers));
    }
  }
  const bool any = std::find(windowed.begin(), windowed.end(), true) != windowed.end();
  const bool used = variant.has_window_switch && f.boolean_or("use_sliding_window", false);
  if (any && !used) not_supported("layer_types", "\"sliding_attention\"", "it needs \"use_sliding_window\": true");
  if (!used) return;
  if (windowed.empty()) {
    const std::int64_t first = f.integer_or("max_window_layers", 28);
    if (first < 0) throw DataError("the field \"max_window_layers\" is " + std::to_string(first) + "; it must be at least 0");
    for (std::int64_t layer = 0; layer < c.layers; ++layer) windowed.push_back(layer >= first);
  }
  if (std::find(windowed.begin(), windowed.end(), true) == windowed.end()) return;
  c.window = f.integer_or("sliding_window", 4096);
  if (c.window < 1) throw DataError("the field \"sliding_window\" is " + std::to_string(c.window) + "; it must be at least 1");
  c.windowed = std::move(windowed);
}

/// transformers chooses the class by model_type, people read architectures: where they differ, the file says two things.
void check_model_type(const Fields& f, const Variant& v) {
  if (!f.has("model_type")) return;
  const std::string type = f.text_or("model_type", "");
  if (type == v.model_type || (!v.other_model_type.empty() && type == v.other_model_type)) return;
  throw DataError("the field \"model_type\" is " + shown(f["model_type"]) +
                  ", which contradicts \"architectures\": " + std::string(v.architecture) + " is of the type \"" +
                  std::string(v.model_type) + "\"; correct the one that is wrong");
}

const Variant& variant_of(const Fields& f, std::span<const Variant> variants) {
  std::string known;
  for (const Variant& v : variants) known += (known.empty() ? "" : ", ") + std::string(v.architecture);
  if (!f.has("architectures") || !f["architectures"].is_array()) {
    throw DataError("the field \"architectures\" is missing or no list; it must name one of " + known);
  }
  for (const Json& name : f["architectures"]) {
    for (const Variant& v : variants) {
      if (name == v.architecture) return v;
    }
  }
  not_supported("architectures", shown(f["architectures"]), "it must name one of " + known);
}

std::int64_t parse_head_dim(const Fields& f, const Config& c, const Variant& variant) {
  if (f.has("head_dim")) return f.integer("head_dim");
  if (variant.head_dim != 0 && !has_experts(f, variant)) return variant.head_dim;
  if (c.heads < 1) throw DataError("\"num_attention_heads\" must be at least 1");
  if (c.hidden % c.heads == 0) return c.hidden / c.heads;
  throw DataError("the field \"head_dim\" is missing, and \"hidden_size\" " + std::to_string(c.hidden) +
                  " is no multiple of \"num_attention_heads\" " + std::to_string(c.heads));
}

/// transformers takes null for as many as queries have, and a number of the family's for a field that is left out.
std::int64_t parse_kv_heads(const Fields& f, const Config& c, const Variant& variant) {
  if (f.has("num_key_value_heads")) return f.integer("num_key_value_heads");
  return variant.kv_heads == 0 || f.is_null("num_key_value_heads") ? c.heads : variant.kv_heads;
}

void parse_token_ids(const Fields& f, Config& c) {
  if (f.has("bos_token_id")) c.bos_token = f.integer("bos_token_id");
  if (f.has("pad_token_id")) c.pad_token = f.integer("pad_token_id");
  if (!f.has("eos_token_id")) return;
  const Json& eos = f["eos_token_id"];
  if (!eos.is_array()) {
    c.eos_tokens = {f.integer("eos_token_id")};
    return;
  }
  if (!std::all_of(eos.begin(), eos.end(), [](const Json& id) { return id.is_number_integer(); })) {
    not_supported("eos_token_id", shown(eos), "it must be an integer or a list of integers");
  }
  c.eos_tokens = eos.get<std::vector<std::int64_t>>();
}

}  // namespace

Config parse_config_json(std::string_view text, std::span<const Variant> variants) {
  const Json json = parse_config(text);
  const Fields f(json);
  const Variant& variant = variant_of(f, variants);
  check_model_type(f, variant);
  refuse_unknown_computation(f, variant);
  Config c;
  c.architecture = variant.architecture;
  c.model_type = variant.model_type;
  c.vocabulary = f.integer("vocab_size");
  c.hidden = f.integer("hidden_size");
  c.layers = f.integer("num_hidden_layers");
  c.heads = f.integer("num_attention_heads");
  c.kv_heads = parse_kv_heads(f, c, variant);
  c.head_dim = parse_head_dim(f, c, variant);
  c.ffn = f.integer("intermediate_size");
  c.max_positions = f.integer("max_position_embeddings");
  c.norm_epsilon = f.number_or("rms_norm_eps", variant.norm_epsilon);
  c.initializer_range = f.number_or("initializer_range", 0.02);
  c.tied = f.boolean_or("tie_word_embeddings", false);
  c.rope_theta = f.number_or("rope_theta", variant.rope_theta);
  // transformers 4 writes rope_scaling, 5 rope_parameters. Of both the former counts, unless it is empty; a rope_theta inside
  // comes before the one outside, as in transformers 5.
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (!f.has(field) || (f[field].is_object() && f[field].empty())) continue;
    c.rope_scaling = read_rope_scaling(f[field], field, c.max_positions);
    c.rope_theta = Fields(f[field], std::string(field) + ".").number_or("rope_theta", c.rope_theta);
    break;
  }
  c.qkv_bias = variant.qkv_bias;
  c.qk_norm = variant.qk_norm;
  parse_token_ids(f, c);
  for (const char* field : {"torch_dtype", "dtype"}) {  // as transformers 4 writes it, and 5
    if (f.has(field) && f[field].is_string()) c.weights_dtype = f[field].get<std::string>();
  }
  c.check();  // before anything is made for each layer
  parse_windows(f, variant, c);
  parse_mixture(f, variant, c);
  c.check();
  return c;
}

std::string to_config_json(const Config& c) {
  nlohmann::ordered_json json{{"architectures", {c.architecture}},
                              {"model_type", c.model_type},
                              {"vocab_size", c.vocabulary},
                              {"hidden_size", c.hidden},
                              {"num_hidden_layers", c.layers},
                              {"num_attention_heads", c.heads},
                              {"num_key_value_heads", c.kv_heads},
                              {"head_dim", c.head_dim},
                              {"intermediate_size", c.ffn},
                              {"max_position_embeddings", c.max_positions},
                              {"hidden_act", "silu"},
                              {"rms_norm_eps", c.norm_epsilon},
                              {"initializer_range", c.initializer_range},
                              {"tie_word_embeddings", c.tied},
                              {"attention_bias", false},
                              {"rope_theta", c.rope_theta},
                              {"torch_dtype", c.weights_dtype}};
  write_rope_scaling(c.rope_scaling, json);
  if (c.window > 0) {
    json["use_sliding_window"] = true;
    json["sliding_window"] = c.window;
    json["max_window_layers"] = std::find(c.windowed.begin(), c.windowed.end(), true) - c.windowed.begin();
    for (const bool windowed : c.windowed) json["layer_types"].push_back(windowed ? "sliding_attention" : "full_attention");
  }
  if (c.mixture.any()) write_mixture(c.mixture, json);
  if (c.bos_token) json["bos_token_id"] = *c.bos_token;
  if (c.eos_tokens.size() == 1) json["eos_token_id"] = c.eos_tokens[0];
  if (c.eos_tokens.size() > 1) json["eos_token_id"] = c.eos_tokens;
  if (c.pad_token) json["pad_token_id"] = *c.pad_token;
  return json.dump(2) + "\n";
}

}  // namespace consist::decoder
