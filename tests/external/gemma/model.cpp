// Gemma 3 (Gemma Team, 2025), its text model, as a plugin of its own: norms in front of and behind attention and MLP, windows in
// most layers, two bases of the rotary embedding. No op and no kernel of its own: factors of norms and GeGLU are
// expressions.
#include "consist/model.h"

#include <algorithm>
#include <cmath>

#include "config.h"
#include "consist/error.h"
#include "consist/layers.h"
#include "consist/plugin.h"

namespace {

using namespace consist;
using gemma::Config;

/// The parts of one micro-batch's program.
class Decoder {
 public:
  Decoder(Builder& b, const Config& c) : b_(b), c_(c) {}

  TensorId build(TensorId ids, TensorId targets, double loss_scale) {
    const auto table_of = [&](const char* name, double base) {
      return layers::rope_table(b_, name, b_[ids].shape[1], layers::rope_frequencies(c_.head_dim, base));
    };
    local_ = table_of("rope.local", c_.rope_local_base_freq);
    global_ = table_of("rope.table", c_.rope_theta);
    documents_ = b_.field("document_start");
    const TensorId table = matrix("model.embed_tokens", c_.vocab_size, c_.hidden_size);
    TensorId x = layers::embedding(b_, ids, table, "model.embed_tokens", c_.pad_token_id);
    x = layers::scaled(b_, x, std::sqrt(static_cast<double>(c_.hidden_size)), "model.embed_tokens.scaled");
    residual_ = no_tensor;
    for (std::int64_t layer = 0; layer < c_.num_hidden_layers; ++layer) {
      b_.tag.layer = static_cast<std::int16_t>(layer);
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      x = attention(norm(x, prefix + "input_layernorm"), prefix, c_.slides[static_cast<std::size_t>(layer)]);
      x = behind(x, prefix + "post_attention_layernorm");
      x = mlp(norm(x, prefix + "pre_feedforward_layernorm"), prefix + "mlp.");
      x = behind(x, prefix + "post_feedforward_layernorm");
    }
    b_.tag.layer = -1;
    return layers::lm_head_loss(b_, norm(x, "model.norm"), table, targets, loss_scale, "loss", b_.field("loss_mask"));
  }

 private:
  TensorId matrix(const std::string& name, std::int64_t out, std::int64_t in) {
    return b_.parameter(name + ".weight", {out, in}, 0, static_cast<float>(c_.initializer_range), true);
  }
  TensorId linear(TensorId x, const std::string& name, std::int64_t out, std::int64_t in) {
    return layers::linear(b_, x, matrix(name, out, in), no_tensor, name);
  }
  /// The factors of a norm: files hold them less 1.
  TensorId factors(const std::string& name, std::int64_t channels) {
    const TensorId weight = b_.parameter(name + ".weight", {channels}, 0, 0, false);
    return layers::map(b_, "1 + a", {weight}, name + ".factors");
  }
  /// Norm of the residual stream, to which x is added first.
  TensorId norm(TensorId x, const std::string& name) {
    const layers::Normed made = layers::rms_norm(b_, x, residual_, factors(name, c_.hidden_size), c_.rms_norm_eps, name);
    residual_ = made.residual;
    return made.y;
  }
  /// Norm of x itself, before it is added to the stream.
  TensorId behind(TensorId x, const std::string& name) {
    return layers::rms_norm(b_, x, no_tensor, factors(name, c_.hidden_size), c_.rms_norm_eps, name).y;
  }

  TensorId attention(TensorId x, const std::string& prefix, bool slides) {
    const std::string name = prefix + "self_attn";
    const std::int64_t q_channels = c_.num_attention_heads * c_.head_dim, kv_channels = c_.num_key_value_heads * c_.head_dim;
    const auto turned = [&](const std::string& which, std::int64_t channels) {
      const TensorId made = linear(x, name + "." + which + "_proj", channels, c_.hidden_size);
      return layers::rope(b_, made, slides ? local_ : global_, factors(name + "." + which + "_norm", c_.head_dim), c_.head_dim,
                          c_.rms_norm_eps, name + "." + which + "_rope");
    };
    const TensorId q = turned("q", q_channels), k = turned("k", kv_channels),
                   v = linear(x, name + ".v_proj", kv_channels, c_.hidden_size);
    const double scale = 1 / std::sqrt(static_cast<double>(c_.query_pre_attn_scalar));
    const TensorId mixed =
        layers::attention(b_, q, k, v, c_.head_dim, name, slides ? c_.sliding_window : 0, documents_, {.scale = scale});
    return linear(mixed, name + ".o_proj", c_.hidden_size, q_channels);
  }

  TensorId mlp(TensorId x, const std::string& prefix) {
    const TensorId gate = linear(x, prefix + "gate_proj", c_.intermediate_size, c_.hidden_size),
                   up = linear(x, prefix + "up_proj", c_.intermediate_size, c_.hidden_size);
    const TensorId activated = layers::map(b_, "gelu_tanh(a) * b", {gate, up}, prefix + "act");
    return linear(activated, prefix + "down_proj", c_.hidden_size, c_.intermediate_size);
  }

  Builder& b_;
  const Config& c_;
  TensorId local_ = no_tensor, global_ = no_tensor, documents_ = no_tensor;
  TensorId residual_ = no_tensor;  // the stream, to which the next norm adds
};

class Gemma3 final : public Architecture {
 public:
  explicit Gemma3(Config config) : c_(std::move(config)) {
    sizes_ = {.layers = c_.num_hidden_layers,
              .heads = c_.num_attention_heads,
              .kv_heads = c_.num_key_value_heads,
              .head_dim = c_.head_dim,
              .hidden = c_.hidden_size,
              .ffn = c_.intermediate_size,
              .vocabulary = c_.vocab_size,
              .max_sequence = c_.max_position_embeddings,
              .window = c_.sliding_window,
              .windowed_layers = std::count(c_.slides.begin(), c_.slides.end(), true)};
    count_parameters(*this, sizes_);
  }

  ModelSizes sizes() const override { return sizes_; }
  TensorId build(Builder& b, TensorId ids, TensorId targets, double loss_scale) const override {
    return Decoder(b, c_).build(ids, targets, loss_scale);
  }
  std::string config_json() const override { return gemma::config_text(c_); }

 private:
  Config c_;
  ModelSizes sizes_;
};

class Family final : public Model {
 public:
  explicit Family(const Options& /*options*/) {}
  std::vector<ModelPreset> presets() const override {
    return {{"gemma3-tiny", "6 layers of 128, 4/1 heads of 32, window 32, vocabulary 4096"},
            {"gemma3-1b", "26 layers of 1152, 4/1 heads of 256, window 512, vocabulary 262144"}};
  }
  std::unique_ptr<Architecture> from_preset(std::string_view name) const override {
    Config c{.num_attention_heads = 4, .num_key_value_heads = 1, .max_position_embeddings = 32768};
    if (name == "gemma3-1b") {
      c.vocab_size = 262144;
      c.hidden_size = 1152;
      c.intermediate_size = 6912;
      c.sliding_window = 512;
    } else if (name == "gemma3-tiny") {
      c.vocab_size = 4096;
      c.hidden_size = 128;
      c.intermediate_size = 384;
      c.num_hidden_layers = 6;
      c.head_dim = c.query_pre_attn_scalar = c.sliding_window = 32;
    } else {
      throw UsageError("there is no preset '" + std::string(name) + "'");
    }
    c.slides = gemma::usual_pattern(c.num_hidden_layers);
    return std::make_unique<Gemma3>(std::move(c));
  }
  bool accepts(std::string_view architecture) const override { return architecture == "Gemma3ForCausalLM"; }
  std::unique_ptr<Architecture> from_config(std::string_view json) const override {
    return std::make_unique<Gemma3>(gemma::read_config(json));
  }
};

}  // namespace

CONSIST_PLUGIN(model, consist::Model, Family, "gemma", "1.0.0", "Gemma 3, its text model");
CONSIST_PLUGIN_NO_OPTIONS();
