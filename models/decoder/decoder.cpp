#include "models/decoder/decoder.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "consist/error.h"
#include "consist/layers.h"
#include "models/decoder/config_json.h"

namespace consist::decoder {
namespace {

/// Creates parameters under Hugging Face's names.
class Weights {
 public:
  Weights(Builder& builder, const Config& config, std::string prefix) : b_(builder), c_(config), prefix_(std::move(prefix)) {}
  TensorId matrix(const std::string& name, std::int64_t out, std::int64_t in) const {
    return b_.parameter(prefix_ + name + ".weight", {out, in}, 0, static_cast<float>(c_.initializer_range), true);
  }
  /// Matrices of all experts; `name` stands for those that files have.
  TensorId stacked(const std::string& name, std::int64_t experts, std::int64_t out, std::int64_t in) const {
    return b_.parameter(prefix_ + name, {experts, out, in}, 0, static_cast<float>(c_.initializer_range), true);
  }
  TensorId norm(const std::string& name, std::int64_t channels) const {
    return b_.parameter(prefix_ + name + ".weight", {channels}, 1, 0, false);
  }
  /// A linear with its weight, and a bias if `biased`.
  TensorId linear(TensorId x, const std::string& name, std::int64_t out, std::int64_t in, bool biased = false) const {
    const TensorId weight = matrix(name, out, in);
    const TensorId bias = biased ? b_.parameter(prefix_ + name + ".bias", {out}, 0, 0, false) : no_tensor;
    return layers::linear(b_, x, weight, bias, prefix_ + name);
  }
  std::string name(const char* of) const { return prefix_ + of; }

 private:
  Builder& b_;
  const Config& c_;
  std::string prefix_;
};

/// Under a layer's prefix. Parameters of all experts stand for the tensors that files have: "*" for an expert's number, "{a,b}"
/// for two matrices whose rows lie one behind the other.
struct MixtureNames {
  const char *router, *gate_up, *down;
};
MixtureNames names_of(MixtureConfig::Names names) {
  if (names == MixtureConfig::Names::mixtral)
    return {"block_sparse_moe.gate", "block_sparse_moe.experts.*.{w1,w3}.weight", "block_sparse_moe.experts.*.w2.weight"};
  return {"mlp.gate", "mlp.experts.*.{gate_proj,up_proj}.weight", "mlp.experts.*.down_proj.weight"};
}

layers::Mixed experts(Builder& b, const Weights& w, const Config& c, TensorId x) {
  const MixtureConfig& m = c.mixture;
  const MixtureNames names = names_of(m.names);
  return layers::mixture_of_experts(b, x,
                                    {.router = w.matrix(names.router, m.experts, c.hidden),
                                     .gate_up = w.stacked(names.gate_up, m.experts, 2 * m.ffn, c.hidden),
                                     .down = w.stacked(names.down, m.experts, c.hidden, m.ffn),
                                     .choices = m.choices,
                                     .normalize = m.normalize},
                                    w.name("mlp"));
}

/// Adds the losses over the tokens of all layers with experts, in the mean over a step's micro-batches: the balance loss as
/// load_balancing_loss_func of transformers has it, experts · Σ_e (choices of e per token) · (mean probability of e), and the
/// z-loss as router_z_loss_func has it for Switch Transformers, the mean of logsumexp(logits)². Routers choose for every token,
/// whether its target counts or not; a micro-batch has as much of that mean as of the targets that count.
void train_routers(Builder& b, const Config& c, TensorId statistics, TensorId targets, double loss_scale) {
  const MixtureConfig& m = c.mixture;
  const auto tokens = static_cast<double>(b[targets].shape.elements()), seen = tokens * static_cast<double>(m.layers());
  // Not the output "loss_count", of which each rank keeps its summand until the step's end: this one is summed over ranks at
  // once.
  const TensorId count = b.program().output(StepOutput::Kind::loss_count) == no_tensor
                             ? no_tensor
                             : b.emit_one("count_targets", {targets}, {}, "aux_loss.count");
  // 1 over the number of tokens that are summed; where targets are masked, without the factor of those that count.
  const double of_micro_batch = count == no_tensor ? loss_scale * tokens : loss_scale;
  const double balance = m.trains_balance ? m.balance : 0;
  layers::add_balance_loss(b, statistics, of_micro_batch * balance * static_cast<double>(m.experts) / (seen * seen),
                           of_micro_batch * m.z / seen, "aux_loss", count);
}

}  // namespace

std::int64_t MixtureConfig::layers() const {
  return any() ? std::count(sparse.begin(), sparse.end(), true) : 0;
}

void Config::check() const {
  // The largest extent keeps the bytes of every matrix, and sums of them over all layers, far within 64 bits.
  auto in_range = [](const char* field, std::int64_t value, std::int64_t largest = 1 << 24) {
    if (value >= 1 && value <= largest) return;
    throw DataError(std::string("\"") + field + "\" is " + std::to_string(value) + "; it must be between 1 and " +
                    std::to_string(largest));
  };
  auto positive = [](const char* field, double value) {
    if (!(value > 0) || !std::isfinite(value)) {
      throw DataError(std::string("\"") + field + "\" is " + std::to_string(value) + "; it must be above 0 and finite");
    }
  };
  in_range("vocab_size", vocabulary);
  in_range("hidden_size", hidden);
  in_range("num_hidden_layers", layers, 32000);
  in_range("num_attention_heads", heads, 1 << 14);
  in_range("num_key_value_heads", kv_heads, 1 << 14);
  in_range("head_dim", head_dim, 1 << 12);
  in_range("intermediate_size", ffn);
  in_range("max_position_embeddings", max_positions, std::int64_t{1} << 31);
  if (heads % kv_heads != 0) {
    throw DataError("\"num_attention_heads\" is " + std::to_string(heads) + " and \"num_key_value_heads\" " +
                    std::to_string(kv_heads) + "; the one must be a multiple of the other");
  }
  if (head_dim % 2 != 0) throw DataError("\"head_dim\" is " + std::to_string(head_dim) + "; rotary embedding needs an even one");
  if (window != 0) in_range("sliding_window", window, std::int64_t{1} << 31);
  if (pad_token && (*pad_token < -vocabulary || *pad_token >= vocabulary)) {
    throw DataError("\"pad_token_id\" is " + std::to_string(*pad_token) + ", but \"vocab_size\" is " +
                    std::to_string(vocabulary) + ": the embedding has no such row (negative ids count from its end)");
  }
  if (mixture.any()) {
    in_range("num_experts", mixture.experts, 1 << 14);
    in_range("num_experts_per_tok", mixture.choices, mixture.experts);
    in_range("moe_intermediate_size", mixture.ffn);
    if (!(mixture.balance >= 0) || !std::isfinite(mixture.balance))
      throw DataError("\"router_aux_loss_coef\" is " + std::to_string(mixture.balance) + "; it must be at least 0 and finite");
    if (!(mixture.z >= 0) || !std::isfinite(mixture.z))
      throw DataError("\"router_z_loss_coef\" is " + std::to_string(mixture.z) + "; it must be at least 0 and finite");
  }
  positive("rms_norm_eps", norm_epsilon);
  positive("rope_theta", rope_theta);
  positive("initializer_range", initializer_range);
}

std::int64_t Config::padding_row() const {
  if (!pad_token) return -1;
  return *pad_token < 0 ? *pad_token + vocabulary : *pad_token;
}

Decoder::Decoder(Config config) : config_(std::move(config)) {
  config_.check();
  const Config& c = config_;
  sizes_ = {.layers = c.layers,
            .heads = c.heads,
            .kv_heads = c.kv_heads,
            .head_dim = c.head_dim,
            .hidden = c.hidden,
            .ffn = c.ffn,
            .vocabulary = c.vocabulary,
            .max_sequence = c.max_positions,
            .window = c.window,
            .windowed_layers = c.window > 0 ? std::count(c.windowed.begin(), c.windowed.end(), true) : 0,
            .experts = c.mixture.layers() > 0 ? c.mixture.experts : 0};
  count_parameters(*this, sizes_);
}

TensorId Decoder::build(Builder& b, TensorId ids, TensorId targets, double loss_scale) const {
  const Config& c = config_;
  const std::int64_t q_channels = c.heads * c.head_dim, kv_channels = c.kv_heads * c.head_dim;
  const TensorId table =
      layers::rope_table(b, "rope.table", b[ids].shape[1], rope_frequencies(c.head_dim, c.rope_theta, c.rope_scaling),
                         c.rope_scaling.table_factor());
  const Weights top(b, c, "model.");
  const TensorId embedding = top.matrix("embed_tokens", c.vocabulary, c.hidden);
  TensorId x = layers::embedding(b, ids, embedding, "model.embed_tokens", c.padding_row());
  TensorId residual = no_tensor;
  TensorId statistics = no_tensor;  // of all routers so far
  // Positions need not begin anew in each document: rotary embedding makes scores of distances alone.
  const TensorId documents = b.field("document_start");

  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    b.tag.layer = static_cast<std::int16_t>(layer);
    const Weights w(b, c, "model.layers." + std::to_string(layer) + ".");
    const layers::Normed attention_in =
        layers::rms_norm(b, x, residual, w.norm("input_layernorm", c.hidden), c.norm_epsilon, w.name("input_layernorm"));
    TensorId q = w.linear(attention_in.y, "self_attn.q_proj", q_channels, c.hidden, c.qkv_bias);
    TensorId k = w.linear(attention_in.y, "self_attn.k_proj", kv_channels, c.hidden, c.qkv_bias);
    const TensorId v = w.linear(attention_in.y, "self_attn.v_proj", kv_channels, c.hidden, c.qkv_bias);
    const TensorId q_norm = c.qk_norm ? w.norm("self_attn.q_norm", c.head_dim) : no_tensor;
    const TensorId k_norm = c.qk_norm ? w.norm("self_attn.k_norm", c.head_dim) : no_tensor;
    q = layers::rope(b, q, table, q_norm, c.head_dim, c.norm_epsilon, w.name("self_attn.q_rope"));
    k = layers::rope(b, k, table, k_norm, c.head_dim, c.norm_epsilon, w.name("self_attn.k_rope"));
    const TensorId mixed =
        layers::attention(b, q, k, v, c.head_dim, w.name("self_attn"),
                          c.window > 0 && c.windowed[static_cast<std::size_t>(layer)] ? c.window : 0, documents);
    const TensorId o = w.linear(mixed, "self_attn.o_proj", c.hidden, q_channels);
    const layers::Normed mlp_in = layers::rms_norm(b, o, attention_in.residual, w.norm("post_attention_layernorm", c.hidden),
                                                   c.norm_epsilon, w.name("post_attention_layernorm"));
    if (c.mixture.at(layer)) {
      const layers::Mixed mixed_experts = experts(b, w, c, mlp_in.y);
      x = mixed_experts.y;
      statistics = statistics == no_tensor
                       ? mixed_experts.statistics
                       : b.emit_one("add", {statistics, mixed_experts.statistics}, {}, w.name("mlp.statistics.sum"));
    } else {
      const TensorId gate = w.linear(mlp_in.y, "mlp.gate_proj", c.ffn, c.hidden);
      const TensorId up = w.linear(mlp_in.y, "mlp.up_proj", c.ffn, c.hidden);
      x = w.linear(layers::swiglu(b, gate, up, w.name("mlp.act")), "mlp.down_proj", c.hidden, c.ffn);
    }
    residual = mlp_in.residual;
  }

  b.tag.layer = -1;
  if (const TensorId mask = b.field("loss_mask"); mask != no_tensor) targets = layers::masked_targets(b, targets, mask, "loss");
  if ((c.mixture.trains_balance || c.mixture.z > 0) && statistics != no_tensor)
    train_routers(b, c, statistics, targets, loss_scale);
  const layers::Normed last = layers::rms_norm(b, x, residual, top.norm("norm", c.hidden), c.norm_epsilon, "model.norm");
  const TensorId head = c.tied ? embedding : Weights(b, c, "").matrix("lm_head", c.vocabulary, c.hidden);
  return layers::lm_head_loss(b, last.y, head, targets, loss_scale, "loss");
}

std::string Decoder::config_json() const {
  return to_config_json(config_);
}

}  // namespace consist::decoder
