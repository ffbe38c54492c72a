// A small decoder whose MLP has the op squared_relu between its two linears.
#include <consist/error.h>
#include <consist/layers.h>
#include <consist/model.h>
#include <consist/plugin.h>

namespace {

using namespace consist;

constexpr std::int64_t layer_count = 2, hidden = 64, heads = 4, head_dim = 16, ffn = 192, vocabulary = 4096;

class PlainDecoder final : public Architecture {
 public:
  ModelSizes sizes() const override {
    const std::int64_t matrices = layer_count * (4 * hidden * heads * head_dim + 2 * hidden * ffn);
    return {.layers = layer_count,
            .heads = heads,
            .kv_heads = heads,
            .head_dim = head_dim,
            .hidden = hidden,
            .ffn = ffn,
            .vocabulary = vocabulary,
            .max_sequence = 1024,
            .parameters = matrices + (2 * layer_count + 1) * hidden + vocabulary * hidden,
            .matmul_parameters = matrices + vocabulary * hidden};
  }

  TensorId build(Builder& b, TensorId ids, TensorId targets, double loss_scale) const override {
    const TensorId table = layers::rope_table(b, "rope.table", b[ids].shape[1], layers::rope_frequencies(head_dim, 10000));
    const TensorId embedding = b.parameter("model.embed_tokens.weight", {vocabulary, hidden}, 0, 0.02F, true);
    TensorId x = layers::embedding(b, ids, embedding, "model.embed_tokens"), residual = no_tensor;
    for (std::int64_t layer = 0; layer < layer_count; ++layer) {
      b.tag.layer = static_cast<std::int16_t>(layer);
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      const auto linear = [&](TensorId in, const std::string& name, std::int64_t to, std::int64_t from) {
        return layers::linear(b, in, b.parameter(prefix + name + ".weight", {to, from}, 0, 0.02F, true), no_tensor,
                              prefix + name);
      };
      const auto norm = [&](TensorId in, const std::string& name) {
        const TensorId weight = b.parameter(prefix + name + ".weight", {hidden}, 1, 0, false);
        const layers::Normed made = layers::rms_norm(b, in, residual, weight, 1e-6, prefix + name);
        residual = made.residual;
        return made.y;
      };
      const TensorId y = norm(x, "input_layernorm");
      const auto rotated = [&](const std::string& name) {
        return layers::rope(b, linear(y, name, heads * head_dim, hidden), table, no_tensor, head_dim, 0, prefix + name + ".rope");
      };
      const TensorId q = rotated("self_attn.q_proj"), k = rotated("self_attn.k_proj");
      const TensorId v = linear(y, "self_attn.v_proj", heads * head_dim, hidden);
      x = linear(layers::attention(b, q, k, v, head_dim, prefix + "self_attn"), "self_attn.o_proj", hidden, heads * head_dim);
      const TensorId up = linear(norm(x, "post_attention_layernorm"), "mlp.up_proj", ffn, hidden);
      x = linear(b.emit_one("squared_relu", {up}, {}, prefix + "mlp.act"), "mlp.down_proj", hidden, ffn);
    }
    b.tag.layer = -1;
    const TensorId last = b.parameter("model.norm.weight", {hidden}, 1, 0, false);
    return layers::lm_head_loss(b, layers::rms_norm(b, x, residual, last, 1e-6, "model.norm").y, embedding, targets, loss_scale,
                                "loss");
  }

  std::string config_json() const override { return R"({"architectures": ["PlainDecoderForCausalLM"]})"; }
};

class PlainDecoders final : public Model {
 public:
  explicit PlainDecoders(const Options&) {}
  std::vector<ModelPreset> presets() const override { return {{"plain-decoder-tiny", "2 layers of 64, squared ReLU"}}; }
  std::unique_ptr<Architecture> from_preset(std::string_view name) const override {
    if (name != "plain-decoder-tiny") throw UsageError("there is no preset '" + std::string(name) + "' of plain-decoder");
    return std::make_unique<PlainDecoder>();
  }
  bool accepts(std::string_view architecture) const override { return architecture == "PlainDecoderForCausalLM"; }
  std::unique_ptr<Architecture> from_config(std::string_view json) const override {
    if (json != PlainDecoder().config_json()) throw DataError("it is not the config.json of plain-decoder, which has one size");
    return std::make_unique<PlainDecoder>();
  }
};

}  // namespace

CONSIST_PLUGIN(model, consist::Model, PlainDecoders, "plain-decoder", "1.0.0",
               "a small decoder with squared ReLU, which needs the kernels squared-relu");
CONSIST_PLUGIN_NO_OPTIONS();
