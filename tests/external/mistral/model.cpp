// Mistral (Jiang et al., 2023) as a plugin of its own: Llama's decoder whose attention sees a sliding window. Written against the
// installed headers only.
#include "consist/model.h"

#include <nlohmann/json.hpp>

#include "consist/config_fields.h"
#include "consist/error.h"
#include "consist/layers.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

/// Field names as in config.json, and transformers' values for those that a file leaves out.
struct Fields {
  std::int64_t vocab_size = 32000, hidden_size = 4096, num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 8,
               head_dim = 128, intermediate_size = 14336, max_position_embeddings = 131072;
  std::int64_t sliding_window = 4096;  ///< 0: attention sees everything before it
  double rms_norm_eps = 1e-6, rope_theta = 10000, initializer_range = 0.02;
};

class Mistral final : public Architecture {
 public:
  explicit Mistral(const Fields& fields) : s_(fields) {
    sizes_ = {.layers = s_.num_hidden_layers,
              .heads = s_.num_attention_heads,
              .kv_heads = s_.num_key_value_heads,
              .head_dim = s_.head_dim,
              .hidden = s_.hidden_size,
              .ffn = s_.intermediate_size,
              .vocabulary = s_.vocab_size,
              .max_sequence = s_.max_position_embeddings,
              .window = s_.sliding_window,
              .windowed_layers = s_.sliding_window > 0 ? s_.num_hidden_layers : 0};
    count_parameters(*this, sizes_);
  }

  ModelSizes sizes() const override { return sizes_; }

  TensorId build(Builder& b, TensorId ids, TensorId targets, double loss_scale) const override {
    const std::int64_t hidden = s_.hidden_size, q_channels = s_.num_attention_heads * s_.head_dim,
                       kv_channels = s_.num_key_value_heads * s_.head_dim;
    const auto matrix = [&](const std::string& name, std::int64_t out, std::int64_t in) {
      return b.parameter(name + ".weight", {out, in}, 0, static_cast<float>(s_.initializer_range), true);
    };
    const auto linear = [&](TensorId x, const std::string& name, std::int64_t out, std::int64_t in) {
      return layers::linear(b, x, matrix(name, out, in), no_tensor, name);
    };
    const auto norm = [&](TensorId x, TensorId residual, const std::string& name) {
      return layers::rms_norm(b, x, residual, b.parameter(name + ".weight", {hidden}, 1, 0, false), s_.rms_norm_eps, name);
    };
    const TensorId angles =
        layers::rope_table(b, "rope.table", b[ids].shape[1], layers::rope_frequencies(s_.head_dim, s_.rope_theta));
    TensorId x = layers::embedding(b, ids, matrix("model.embed_tokens", s_.vocab_size, hidden), "model.embed_tokens");
    TensorId residual = no_tensor;
    for (std::int64_t layer = 0; layer < s_.num_hidden_layers; ++layer) {
      b.tag.layer = static_cast<std::int16_t>(layer);
      const std::string prefix = "model.layers." + std::to_string(layer) + ".", attention = prefix + "self_attn";
      const layers::Normed before = norm(x, residual, prefix + "input_layernorm");
      const TensorId q = linear(before.y, attention + ".q_proj", q_channels, hidden),
                     k = linear(before.y, attention + ".k_proj", kv_channels, hidden),
                     v = linear(before.y, attention + ".v_proj", kv_channels, hidden);
      const TensorId turned_q = layers::rope(b, q, angles, no_tensor, s_.head_dim, s_.rms_norm_eps, attention + ".q_rope"),
                     turned_k = layers::rope(b, k, angles, no_tensor, s_.head_dim, s_.rms_norm_eps, attention + ".k_rope");
      const TensorId mixed = layers::attention(b, turned_q, turned_k, v, s_.head_dim, attention, s_.sliding_window);
      const layers::Normed between =
          norm(linear(mixed, attention + ".o_proj", hidden, q_channels), before.residual, prefix + "post_attention_layernorm");
      const TensorId gate = linear(between.y, prefix + "mlp.gate_proj", s_.intermediate_size, hidden),
                     up = linear(between.y, prefix + "mlp.up_proj", s_.intermediate_size, hidden);
      x = linear(layers::swiglu(b, gate, up, prefix + "mlp.act"), prefix + "mlp.down_proj", hidden, s_.intermediate_size);
      residual = between.residual;
    }
    b.tag.layer = -1;
    const layers::Normed last = norm(x, residual, "model.norm");
    return layers::lm_head_loss(b, last.y, matrix("lm_head", s_.vocab_size, hidden), targets, loss_scale, "loss");
  }

  std::string config_json() const override {
    nlohmann::ordered_json json{{"architectures", {"MistralForCausalLM"}}, {"model_type", "mistral"}, {"hidden_act", "silu"}};
    for_each_field(s_, [&](const char* name, const auto& value) { json[name] = value; });
    json["sliding_window"] = s_.sliding_window > 0 ? nlohmann::ordered_json(s_.sliding_window) : nlohmann::ordered_json();
    json["tie_word_embeddings"] = false;
    return json.dump(2) + "\n";
  }

  /// Throws DataError naming the field.
  static Fields read(std::string_view text) {
    const nlohmann::json json = parse_config(text);
    const ConfigFields f(json);
    Fields made;
    made.head_dim = 0;
    for_each_field(made, [&](const char* name, auto& value) { f.read(name, value); });
    if (f.is_null("sliding_window")) made.sliding_window = 0;
    f.read("sliding_window", made.sliding_window);
    for (const auto& [name, supported] : {std::pair<const char*, nlohmann::json>{"hidden_act", "silu"},
                                          {"tie_word_embeddings", false},
                                          {"rope_scaling", nullptr},
                                          {"attention_dropout", 0}})
      f.only(name, supported);
    if (made.num_attention_heads % made.num_key_value_heads != 0)
      f.refuse("num_attention_heads", "it must be a multiple of \"num_key_value_heads\"");
    if (made.head_dim == 0) made.head_dim = made.hidden_size / made.num_attention_heads;
    if (made.head_dim == 0 || made.head_dim % 2 != 0) throw DataError("\"head_dim\" must be even");
    return made;
  }

 private:
  template <typename S, typename Visit>
  static void for_each_field(S& s, const Visit& visit) {
    visit("vocab_size", s.vocab_size);
    visit("hidden_size", s.hidden_size);
    visit("num_hidden_layers", s.num_hidden_layers);
    visit("num_attention_heads", s.num_attention_heads);
    visit("num_key_value_heads", s.num_key_value_heads);
    visit("head_dim", s.head_dim);
    visit("intermediate_size", s.intermediate_size);
    visit("max_position_embeddings", s.max_position_embeddings);
    visit("rms_norm_eps", s.rms_norm_eps);
    visit("rope_theta", s.rope_theta);
    visit("initializer_range", s.initializer_range);
  }
  Fields s_;
  ModelSizes sizes_;
};

class MistralFamily final : public Model {
 public:
  explicit MistralFamily(const Options& /*options*/) {}
  std::vector<ModelPreset> presets() const override {
    return {{"mistral-tiny", "4 layers of 128, 4/2 heads of 32, window 48, vocabulary 4096"},
            {"mistral-7b-v0.1", "32 layers of 4096, 32/8 heads of 128, window 4096, vocabulary 32000"}};
  }
  std::unique_ptr<Architecture> from_preset(std::string_view name) const override {
    if (name == "mistral-7b-v0.1")
      return std::make_unique<Mistral>(Fields{.max_position_embeddings = 32768, .rms_norm_eps = 1e-5});
    if (name != "mistral-tiny") throw UsageError("there is no preset '" + std::string(name) + "'");
    return std::make_unique<Mistral>(Fields{.vocab_size = 4096,
                                            .hidden_size = 128,
                                            .num_hidden_layers = 4,
                                            .num_attention_heads = 4,
                                            .num_key_value_heads = 2,
                                            .head_dim = 32,
                                            .intermediate_size = 384,
                                            .max_position_embeddings = 2048,
                                            .sliding_window = 48});
  }
  bool accepts(std::string_view architecture) const override { return architecture == "MistralForCausalLM"; }
  std::unique_ptr<Architecture> from_config(std::string_view json) const override {
    return std::make_unique<Mistral>(Mistral::read(json));
  }
};

}  // namespace

CONSIST_PLUGIN(model, consist::Model, MistralFamily, "mistral", "1.0.0", "Mistral with its sliding window");
CONSIST_PLUGIN_NO_OPTIONS();
