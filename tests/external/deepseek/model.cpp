// DeepSeek-V2 and DeepSeek-V3 (DeepSeek-AI, 2024) as a plugin of its own: latent attention, whose keys and values are made of one
// vector of low rank, beside a rotated part that all heads share; experts, some of which see every token. Those of V3 are chosen
// within groups, by sigmoids and a bias.
// No op and no kernel of its own: parts of heads are the ops split and concat.
#include "consist/model.h"

#include <cmath>
#include <string>
#include <utility>

#include "config.h"
#include "consist/error.h"
#include "consist/layers.h"
#include "consist/plugin.h"

namespace {

using namespace consist;
using deepseek::Config;

constexpr double low_rank_epsilon = 1e-6;  // of norms within attention, whatever rms_norm_eps is

/// The parts of one micro-batch's program.
class Decoder {
 public:
  Decoder(Builder& b, const Config& c) : b_(b), c_(c) {}

  TensorId build(TensorId ids, TensorId targets, double loss_scale) {
    table_ =
        layers::rope_table(b_, "rope.table", b_[ids].shape[1],
                           rope_frequencies(c_.qk_rope_head_dim, c_.rope_theta, c_.rope_scaling), c_.rope_scaling.table_factor());
    documents_ = b_.field("document_start");
    const TensorId words = matrix("model.embed_tokens", c_.vocab_size, c_.hidden_size);
    TensorId x = layers::embedding(b_, ids, words, "model.embed_tokens", c_.pad_token_id);
    for (std::int64_t layer = 0; layer < c_.num_hidden_layers; ++layer) {
      b_.tag.layer = static_cast<std::int16_t>(layer);
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      x = attention(added(x, prefix + "input_layernorm"), prefix + "self_attn.");
      x = added(x, prefix + "post_attention_layernorm");
      x = layer < c_.first_k_dense_replace ? mlp(x, prefix + "mlp.", c_.intermediate_size) : experts(x, prefix + "mlp.");
    }
    b_.tag.layer = -1;
    x = added(x, "model.norm");
    const TensorId head = c_.tie_word_embeddings ? words : matrix("lm_head", c_.vocab_size, c_.hidden_size);
    return layers::lm_head_loss(b_, x, head, targets, loss_scale, "loss", b_.field("loss_mask"));
  }

 private:
  TensorId matrix(const std::string& name, std::int64_t out, std::int64_t in) {
    return b_.parameter(name + ".weight", {out, in}, 0, static_cast<float>(c_.initializer_range), true);
  }
  TensorId linear(TensorId x, const std::string& name, std::int64_t out) {
    return layers::linear(b_, x, matrix(name, out, b_[x].shape.last()), no_tensor, name);
  }
  TensorId factors(const std::string& name, std::int64_t channels) {
    return b_.parameter(name + ".weight", {channels}, 1, 0, false);
  }
  /// Adds x to the residual stream and makes the norm of it.
  TensorId added(TensorId x, const std::string& name) {
    const layers::Normed made = layers::rms_norm(b_, x, residual_, factors(name, c_.hidden_size), c_.rms_norm_eps, name);
    residual_ = made.residual;
    return made.y;
  }
  TensorId low_rank(TensorId x, const std::string& name) {
    return layers::rms_norm(b_, x, no_tensor, factors(name, b_[x].shape.last()), low_rank_epsilon, name).y;
  }

  /// Rotates neighbours as pairs: files have them side by side, rope() takes the first ones of all pairs before the second ones.
  /// Scores are the same in whichever order the channels of both queries and keys are.
  TensorId rotated(TensorId x, std::int64_t heads, const std::string& name) {
    const TensorId by_halves = layers::concat(b_, layers::split(b_, x, {1, 1}, name + ".pairs"), heads, name + ".halves");
    return layers::rope(b_, by_halves, table_, no_tensor, c_.qk_rope_head_dim, 0, name);
  }

  TensorId attention(TensorId x, const std::string& prefix) {
    const std::int64_t heads = c_.num_attention_heads;
    TensorId q = x;
    if (c_.q_lora_rank > 0) q = low_rank(linear(x, prefix + "q_a_proj", c_.q_lora_rank), prefix + "q_a_layernorm");
    q = linear(q, prefix + (c_.q_lora_rank > 0 ? "q_b_proj" : "q_proj"), heads * c_.qk_head_dim());
    const auto q_parts = layers::split(b_, q, {c_.qk_nope_head_dim, c_.qk_rope_head_dim}, prefix + "q");
    const TensorId low = linear(x, prefix + "kv_a_proj_with_mqa", c_.kv_lora_rank + c_.qk_rope_head_dim);
    const auto low_parts = layers::split(b_, low, {c_.kv_lora_rank, c_.qk_rope_head_dim}, prefix + "kv_a");
    const TensorId kv = linear(low_rank(low_parts[0], prefix + "kv_a_layernorm"), prefix + "kv_b_proj",
                               heads * (c_.qk_nope_head_dim + c_.v_head_dim));
    const auto kv_parts = layers::split(b_, kv, {c_.qk_nope_head_dim, c_.v_head_dim}, prefix + "kv_b");
    const TensorId q_rotated = rotated(q_parts[1], heads, prefix + "q_rope"),
                   k_rotated = rotated(low_parts[1], 1, prefix + "k_rope");
    const TensorId queries = layers::concat(b_, {q_parts[0], q_rotated}, heads, prefix + "queries"),
                   keys = layers::concat(b_, {kv_parts[0]}, heads, prefix + "keys", {k_rotated});
    const TensorId mixed = layers::attention(b_, queries, keys, kv_parts[1], c_.qk_head_dim(), prefix + "attention", 0,
                                             documents_, {.scale = score_scale()});
    return linear(mixed, prefix + "o_proj", c_.hidden_size);
  }

  double score_scale() const {
    const double scale = 1 / std::sqrt(static_cast<double>(c_.qk_head_dim()));
    if (c_.version == 2 || c_.rope_scaling.mscale_all_dim == 0) return scale;  // transformers leaves it out for DeepSeek-V2
    return scale * std::pow(c_.rope_scaling.magnitude(c_.rope_scaling.mscale_all_dim), 2);
  }

  TensorId mlp(TensorId x, const std::string& prefix, std::int64_t ffn) {
    const TensorId gate = linear(x, prefix + "gate_proj", ffn), up = linear(x, prefix + "up_proj", ffn);
    return linear(layers::swiglu(b_, gate, up, prefix + "act"), prefix + "down_proj", c_.hidden_size);
  }

  /// Parameters of all experts stand for the tensors that files have: "*" for an expert's number, "{a,b}" for two matrices whose
  /// rows lie one behind the other.
  TensorId experts(TensorId x, const std::string& prefix) {
    const auto stacked = [&](const std::string& name, std::int64_t out, std::int64_t in) {
      return b_.parameter(prefix + "experts.*." + name + ".weight", {c_.n_routed_experts, out, in}, 0,
                          static_cast<float>(c_.initializer_range), true);
    };
    const TensorId router = matrix(prefix + "gate", c_.n_routed_experts, c_.hidden_size);
    layers::Mixture mixture{.router = router,
                            .gate_up = stacked("{gate_proj,up_proj}", 2 * c_.moe_intermediate_size, c_.hidden_size),
                            .down = stacked("down_proj", c_.hidden_size, c_.moe_intermediate_size),
                            .choices = c_.num_experts_per_tok,
                            .normalize = c_.norm_topk_prob};
    if (c_.version == 3) {
      mixture.sigmoid = true;
      mixture.bias = b_.parameter(prefix + "gate.e_score_correction_bias", {c_.n_routed_experts}, 0, 0, false);
      mixture.groups = c_.n_group;
      mixture.kept_groups = c_.topk_group;
    }
    TensorId y = layers::mixture_of_experts(b_, x, mixture, prefix + "routed").y;
    if (c_.routed_scaling_factor != 1) y = layers::scaled(b_, y, c_.routed_scaling_factor, prefix + "routed.scaled");
    if (c_.n_shared_experts == 0) return y;
    const TensorId shared = mlp(x, prefix + "shared_experts.", c_.n_shared_experts * c_.moe_intermediate_size);
    return b_.emit_one("add", {y, shared}, {}, prefix + "sum");
  }

  Builder& b_;
  const Config& c_;
  TensorId table_ = no_tensor, documents_ = no_tensor;
  TensorId residual_ = no_tensor;  // the stream, to which the next norm adds
};

class DeepSeek final : public Architecture {
 public:
  explicit DeepSeek(Config config) : c_(std::move(config)) {
    sizes_ = {.layers = c_.num_hidden_layers,
              .heads = c_.num_attention_heads,
              .kv_heads = c_.num_attention_heads,
              .head_dim = c_.qk_head_dim(),
              .hidden = c_.hidden_size,
              .ffn = c_.intermediate_size,
              .vocabulary = c_.vocab_size,
              .max_sequence = c_.max_position_embeddings,
              .experts = c_.has_experts() ? c_.n_routed_experts : 0};
    count_parameters(*this, sizes_);
  }

  ModelSizes sizes() const override { return sizes_; }
  TensorId build(Builder& b, TensorId ids, TensorId targets, double loss_scale) const override {
    return Decoder(b, c_).build(ids, targets, loss_scale);
  }
  std::string config_json() const override { return deepseek::config_text(c_); }

 private:
  Config c_;
  ModelSizes sizes_;
};

class Family final : public Model {
 public:
  explicit Family(const Options& /*options*/) {}
  std::vector<ModelPreset> presets() const override {
    return {{"deepseek-tiny", "4 layers of 128, 4 heads of 32+16 and 32, 8 experts, vocabulary 4096"},
            {"deepseek-v2-lite", "27 layers of 2048, 16 heads of 128+64 and 128, 64 experts, vocabulary 102400"}};
  }
  std::unique_ptr<Architecture> from_preset(std::string_view name) const override {
    Config c;
    c.q_lora_rank = 0, c.first_k_dense_replace = 1;
    if (name == "deepseek-v2-lite") {
      c.vocab_size = 102400, c.hidden_size = 2048, c.intermediate_size = 10944, c.num_hidden_layers = 27;
      c.num_attention_heads = 16, c.moe_intermediate_size = 1408, c.num_experts_per_tok = 6, c.max_position_embeddings = 163840;
      c.rope_scaling = {.kind = RopeScaling::Kind::yarn,
                        .factor = 40,
                        .mscale = 0.707,
                        .mscale_all_dim = 0.707,
                        .original_max_position_embeddings = 4096};
    } else if (name == "deepseek-tiny") {
      c.vocab_size = 4096, c.hidden_size = 128, c.intermediate_size = 384, c.num_hidden_layers = c.num_attention_heads = 4;
      c.kv_lora_rank = 64, c.qk_nope_head_dim = c.v_head_dim = 32, c.qk_rope_head_dim = 16, c.moe_intermediate_size = 96;
      c.n_routed_experts = 8, c.n_shared_experts = 1, c.num_experts_per_tok = 2, c.max_position_embeddings = 4096;
    } else {
      throw UsageError("there is no preset '" + std::string(name) + "'");
    }
    return std::make_unique<DeepSeek>(std::move(c));
  }
  bool accepts(std::string_view architecture) const override {
    return architecture == "DeepseekV2ForCausalLM" || architecture == "DeepseekV3ForCausalLM";
  }
  std::unique_ptr<Architecture> from_config(std::string_view json) const override {
    return std::make_unique<DeepSeek>(deepseek::read_config(json));
  }
};

}  // namespace

CONSIST_PLUGIN(model, consist::Model, Family, "deepseek", "1.0.0", "DeepSeek-V2 and DeepSeek-V3");
CONSIST_PLUGIN_NO_OPTIONS();
