#include "models/decoder/config_json.h"

#include <nlohmann/json.hpp>

#include "consist/error.h"

namespace consist::decoder {
namespace {

using Json = nlohmann::ordered_json;

/// Typed access that names the field in its errors. Null counts as absent, as transformers writes it.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}
  bool has(const char* name) const { return json_.contains(name) && !json_[name].is_null(); }
  std::int64_t integer(const char* name) const {
    require(name);
    if (!json_[name].is_number_integer()) wrong(name, "an integer");
    return json_[name].get<std::int64_t>();
  }
  std::int64_t integer_or(const char* name, std::int64_t fallback) const { return has(name) ? integer(name) : fallback; }
  double number(const char* name) const {
    require(name);
    if (!json_[name].is_number()) wrong(name, "a number");
    return json_[name].get<double>();
  }
  double number_or(const char* name, double fallback) const { return has(name) ? number(name) : fallback; }
  bool boolean_or(const char* name, bool fallback) const {
    if (!has(name)) return fallback;
    if (!json_[name].is_boolean()) wrong(name, "true or false");
    return json_[name].get<bool>();
  }
  std::string text_or(const char* name, const char* fallback) const {
    if (!has(name)) return fallback;
    if (!json_[name].is_string()) wrong(name, "a text");
    return json_[name].get<std::string>();
  }
  const Json& operator[](const char* name) const { return json_[name]; }

 private:
  void require(const char* name) const {
    if (!has(name)) throw DataError(std::string("the field \"") + name + "\" is missing");
  }
  [[noreturn]] void wrong(const char* name, const char* expected) const {
    throw DataError(std::string("the field \"") + name + "\" is " + json_[name].dump() + "; it must be " + expected);
  }
  const Json& json_;
};

[[noreturn]] void not_supported(const std::string& field, const std::string& value, const std::string& instead) {
  throw DataError("the field \"" + field + "\" is " + value + ", which is not supported" + (instead.empty() ? "" : "; " + instead));
}

RopeScaling parse_scaling(const Json& json, const char* field) {
  if (!json.is_object()) not_supported(field, json.dump(), "it must be an object");
  const Fields f(json);
  const std::string kind = f.has("rope_type") ? f.text_or("rope_type", "default") : f.text_or("type", "default");
  RopeScaling scaling;
  if (kind == "default") return scaling;
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    scaling.factor = f.number("factor");
  } else if (kind == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.factor = f.number("factor");
    scaling.low_freq_factor = f.number("low_freq_factor");
    scaling.high_freq_factor = f.number("high_freq_factor");
    scaling.original_max_position_embeddings = f.integer("original_max_position_embeddings");
    if (scaling.high_freq_factor <= scaling.low_freq_factor || scaling.original_max_position_embeddings < 1) {
      throw DataError(std::string("the factors in \"") + field + "\" make no sense: " + json.dump());
    }
  } else {
    not_supported(std::string(field) + ".rope_type", "\"" + kind + "\"", "supported are default, linear and llama3");
  }
  if (!(scaling.factor > 0)) throw DataError(std::string("\"factor\" in \"") + field + "\" must be positive");
  return scaling;
}

/// Fields that change the computation in ways this decoder does not know.
void refuse_unknown_computation(const Fields& f, const Family& family) {
  const std::string activation = f.text_or("hidden_act", "silu");
  if (activation != "silu") not_supported("hidden_act", "\"" + activation + "\"", "supported is silu");
  if (f.boolean_or("mlp_bias", false)) not_supported("mlp_bias", "true", "");
  if (f.boolean_or("attention_bias", false) && !family.qkv_bias) not_supported("attention_bias", "true", "");
  if (f.number_or("attention_dropout", 0) != 0) not_supported("attention_dropout", f["attention_dropout"].dump(), "set it to 0");
  if (f.boolean_or("use_sliding_window", false)) not_supported("use_sliding_window", "true", "attention is over the whole sequence");
  if (f.has("quantization_config")) not_supported("quantization_config", "given", "load unquantized weights");
  if (f.number_or("partial_rotary_factor", 1) != 1) not_supported("partial_rotary_factor", f["partial_rotary_factor"].dump(), "");
  for (const char* experts : {"num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
    if (f.has(experts)) not_supported(experts, f[experts].dump(), "mixtures of experts are not implemented");
  }
  if (f.has("layer_types")) {
    for (const Json& type : f["layer_types"]) {
      if (type != "full_attention") not_supported("layer_types", type.dump(), "every layer must be full_attention");
    }
  }
}

}  // namespace

Config parse_config_json(std::string_view text, const Family& family) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) throw DataError("it is no JSON object");
  const Fields f(json);
  refuse_unknown_computation(f, family);
  Config c;
  if (f.has("architectures") && f["architectures"].is_array() && !f["architectures"].empty() && f["architectures"][0].is_string()) {
    c.architecture = f["architectures"][0].get<std::string>();
  }
  c.model_type = f.text_or("model_type", "llama");
  c.vocabulary = f.integer("vocab_size");
  c.hidden = f.integer("hidden_size");
  c.layers = f.integer("num_hidden_layers");
  c.heads = f.integer("num_attention_heads");
  c.kv_heads = f.integer_or("num_key_value_heads", c.heads);
  if (c.heads < 1) throw DataError("\"num_attention_heads\" must be at least 1");
  c.head_dim = f.integer_or("head_dim", c.hidden / c.heads);
  c.ffn = f.integer("intermediate_size");
  c.max_positions = f.integer("max_position_embeddings");
  c.norm_epsilon = f.number_or("rms_norm_eps", 1e-6);
  c.initializer_range = f.number_or("initializer_range", 0.02);
  c.tied = f.boolean_or("tie_word_embeddings", false);
  c.rope_theta = f.number_or("rope_theta", 10000);
  if (f.has("rope_scaling")) c.rope_scaling = parse_scaling(f["rope_scaling"], "rope_scaling");
  if (f.has("rope_parameters")) {  // how transformers 5 writes both
    c.rope_scaling = parse_scaling(f["rope_parameters"], "rope_parameters");
    c.rope_theta = Fields(f["rope_parameters"]).number_or("rope_theta", c.rope_theta);
  }
  c.qkv_bias = family.qkv_bias;
  c.qk_norm = family.qk_norm;
  c.check();
  return c;
}

std::string to_config_json(const Config& c) {
  Json json{{"architectures", {c.architecture}},
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
            {"torch_dtype", "float32"}};
  const RopeScaling& s = c.rope_scaling;
  if (s.kind == RopeScaling::Kind::linear) json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", s.factor}};
  if (s.kind == RopeScaling::Kind::llama3) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", s.factor},
                            {"low_freq_factor", s.low_freq_factor},
                            {"high_freq_factor", s.high_freq_factor},
                            {"original_max_position_embeddings", s.original_max_position_embeddings}};
  }
  return json.dump(2) + "\n";
}

}  // namespace consist::decoder
