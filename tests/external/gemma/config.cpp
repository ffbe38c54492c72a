#include "config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "consist/config_fields.h"
#include "consist/error.h"

namespace gemma {
namespace {

using consist::ConfigFields;
using nlohmann::json;

template <typename C, typename Visit>
void for_each_field(C& c, const Visit& visit) {
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
  visit("rms_norm_eps", c.rms_norm_eps);
  visit("rope_theta", c.rope_theta);
  visit("rope_local_base_freq", c.rope_local_base_freq);
  visit("initializer_range", c.initializer_range);
}

std::vector<bool> layer_types(const ConfigFields& f, std::int64_t layers) {
  std::int64_t period = 6;
  f.read("sliding_window_pattern", period);
  if (!f.has("layer_types")) return usual_pattern(layers, period);
  const json& types = f["layer_types"];
  if (!types.is_array() || types.size() != static_cast<std::size_t>(layers))
    f.refuse("layer_types", "it must be a list of " + std::to_string(layers) + ", one for each of \"num_hidden_layers\"");
  std::vector<bool> slides;
  for (const json& type : types) {
    if (type != "sliding_attention" && type != "full_attention")
      f.refuse("layer_types", R"(each must be "sliding_attention" or "full_attention")");
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
  const json file = consist::parse_config(text);
  const ConfigFields f(file);
  for (const char* field : {"vocab_size", "hidden_size", "num_hidden_layers"}) f.require(field);
  for (const auto& [field, supported] : {std::pair<const char*, json>{"hidden_activation", "gelu_pytorch_tanh"},
                                         {"tie_word_embeddings", true},
                                         {"attention_bias", false},
                                         {"attention_dropout", 0.0},
                                         {"rope_scaling", nullptr},
                                         {"final_logit_softcapping", nullptr},
                                         {"attn_logit_softcapping", nullptr},
                                         {"use_bidirectional_attention", false}})
    f.only(field, supported);
  Config c;
  for_each_field(c, [&](const char* field, auto& value) { f.read(field, value); });
  // A file that says null has no pad token; one that says nothing has transformers' default.
  if (f.is_null("pad_token_id")) c.pad_token_id = -1;
  f.read("pad_token_id", c.pad_token_id, 0);
  if (c.pad_token_id >= c.vocab_size) f.refuse("pad_token_id", "it must be less than \"vocab_size\"");
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    f.refuse("num_attention_heads", "it must be a multiple of \"num_key_value_heads\"");
  if (c.head_dim % 2 != 0) f.refuse("head_dim", "rotary embedding needs an even one");
  c.slides = layer_types(f, c.num_hidden_layers);
  return c;
}

std::string config_text(const Config& config) {
  nlohmann::ordered_json file{{"architectures", {"Gemma3ForCausalLM"}},
                              {"model_type", "gemma3_text"},
                              {"hidden_activation", "gelu_pytorch_tanh"},
                              {"tie_word_embeddings", true}};
  for_each_field(config, [&](const char* field, const auto& value) { file[field] = value; });
  file["pad_token_id"] = config.pad_token_id < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(config.pad_token_id);
  for (const bool slides : config.slides) file["layer_types"].push_back(slides ? "sliding_attention" : "full_attention");
  return file.dump(2) + "\n";
}

}  // namespace gemma
