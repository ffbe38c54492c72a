#include "config.h"

#include <nlohmann/json.hpp>

#include "consist/error.h"

namespace gemma {
namespace {

using consist::DataError;
using nlohmann::json;

template <typename C, typename Visit>
void for_each_integer(C& c, Visit visit) {
  visit("vocab_size", c.vocab_size);
  visit("hidden_size", c.hidden_size);
  visit("intermediate_size", c.intermediate_size);
  visit("num_hidden_layers", c.num_hidden_layers);
  visit("num_attention_heads", c.num_attention_heads);
  visit("num_key_value_heads", c.num_key_value_heads);
  visit("head_dim", c.head_dim);
  visit("max_position_embeddings", c.max_position_embeddings);
  visit("query_pre_attn_scalar", c.query_pre_attn_scalar);
  visit("sliding_window", c.sliding_window);
}

template <typename C, typename Visit>
void for_each_real(C& c, Visit visit) {
  visit("rms_norm_eps", c.rms_norm_eps);
  visit("rope_theta", c.rope_theta);
  visit("rope_local_base_freq", c.rope_local_base_freq);
  visit("initializer_range", c.initializer_range);
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

/// Fields that change what is computed, with the one value of each that is supported.
void check_fixed_fields(const json& file) {
  const std::pair<const char*, json> fixed[] = {{"hidden_activation", "gelu_pytorch_tanh"},
                                                {"tie_word_embeddings", true},
                                                {"attention_bias", false},
                                                {"attention_dropout", 0.0},
                                                {"rope_scaling", nullptr},
                                                {"final_logit_softcapping", nullptr},
                                                {"attn_logit_softcapping", nullptr},
                                                {"use_bidirectional_attention", false}};
  for (const auto& [field, supported] : fixed) {
    if (is_there(file, field) && file[field] != supported) refuse(file, field, "this plugin supports " + supported.dump());
  }
}

std::vector<bool> layer_types(const json& file, std::int64_t layers) {
  if (!is_there(file, "layer_types")) return usual_pattern(layers, integer(file, "sliding_window_pattern", 1, 6));
  const json& types = file["layer_types"];
  if (!types.is_array() || types.size() != static_cast<std::size_t>(layers))
    refuse(file, "layer_types", "it must be a list of " + std::to_string(layers) + ", one for each of \"num_hidden_layers\"");
  std::vector<bool> slides;
  for (const json& type : types) {
    if (type != "sliding_attention" && type != "full_attention")
      refuse(file, "layer_types", R"(each must be "sliding_attention" or "full_attention")");
    slides.push_back(type == "sliding_attention");
  }
  return slides;
}

}  // namespace

std::vector<bool> usual_pattern(std::int64_t layers, std::int64_t period) {
  std::vector<bool> slides;
  for (std::int64_t layer = 1; layer <= layers; ++layer) slides.push_back(layer % period != 0);
  return slides;
}

Config read_config(std::string_view text) {
  const json file = json::parse(text, nullptr, false);
  if (!file.is_object()) throw DataError("config.json is no JSON object");
  for (const char* field : {"vocab_size", "hidden_size", "num_hidden_layers"}) {
    if (!is_there(file, field)) throw DataError(std::string("\"") + field + "\" is missing");
  }
  check_fixed_fields(file);
  Config config;
  for_each_integer(config, [&](const char* field, std::int64_t& value) { value = integer(file, field, 1, value); });
  for_each_real(config, [&](const char* field, double& value) {
    if (!is_there(file, field)) return;
    if (!file[field].is_number() || !(file[field].get<double>() > 0)) refuse(file, field, "it must be a number above 0");
    value = file[field].get<double>();
  });
  // A file that says null has no pad token; one that says nothing has transformers' default.
  if (file.contains("pad_token_id")) config.pad_token_id = integer(file, "pad_token_id", 0, -1);
  if (config.pad_token_id >= config.vocab_size) refuse(file, "pad_token_id", "it must be less than \"vocab_size\"");
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    throw DataError("\"num_attention_heads\" must be a multiple of \"num_key_value_heads\"");
  if (config.head_dim % 2 != 0) refuse(file, "head_dim", "rotary embedding needs an even one");
  config.slides = layer_types(file, config.num_hidden_layers);
  return config;
}

std::string config_text(const Config& config) {
  nlohmann::ordered_json file{{"architectures", {"Gemma3ForCausalLM"}},
                              {"model_type", "gemma3_text"},
                              {"hidden_activation", "gelu_pytorch_tanh"},
                              {"tie_word_embeddings", true}};
  for_each_integer(config, [&](const char* field, std::int64_t value) { file[field] = value; });
  for_each_real(config, [&](const char* field, double value) { file[field] = value; });
  file["pad_token_id"] = config.pad_token_id < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(config.pad_token_id);
  for (const bool slides : config.slides) file["layer_types"].push_back(slides ? "sliding_attention" : "full_attention");
  return file.dump(2) + "\n";
}

}  // namespace gemma
