// Qwen2.5 (q/k/v biases) and Qwen3 (RMSNorm of queries and keys; head_dim of its own), after their technical reports (Qwen team,
// 2024 and 2025).
#include "consist/log.h"
#include "consist/plugin.h"
#include "models/decoder/family.h"

namespace {

using namespace consist;
using decoder::Config;

/// Sizes as in the published config.json files.
Config qwen3(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
             std::int64_t ffn, bool tied, std::int64_t vocabulary = 151936) {
  return {.architecture = "Qwen3ForCausalLM",
          .model_type = "qwen3",
          .vocabulary = vocabulary,
          .hidden = hidden,
          .layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .ffn = ffn,
          .max_positions = 40960,
          .rope_theta = 1e6,
          .norm_epsilon = 1e-6,
          .tied = tied,
          .qk_norm = true};
}

/// Experts in every layer. Presets train their routers to be balanced; the published files leave that switched off.
Config qwen3_moe(Config c, std::int64_t experts, std::int64_t choices, std::int64_t ffn) {
  c.architecture = "Qwen3MoeForCausalLM";
  c.model_type = "qwen3_moe";
  c.mixture = {.experts = experts,
               .choices = choices,
               .ffn = ffn,
               .normalize = true,
               .balance = 0.001,
               .trains_balance = true,
               .sparse = std::vector<bool>(static_cast<std::size_t>(c.layers), true)};
  return c;
}

Config qwen25(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn, bool tied) {
  Config c = qwen3(hidden, layers, heads, kv_heads, hidden / heads, ffn, tied);
  c.architecture = "Qwen2ForCausalLM";
  c.model_type = "qwen2";
  c.max_positions = 32768;
  c.qk_norm = false;
  c.qkv_bias = true;
  return c;
}

const std::vector<decoder::Preset>& presets() {
  static const std::vector<decoder::Preset> list{
      {"qwen3-tiny", qwen3(128, 4, 6, 2, 32, 384, true, 4096)},
      {"qwen3-100m", qwen3(640, 12, 10, 5, 128, 1920, true, 32768)},
      {"qwen3-0.6b", qwen3(1024, 28, 16, 8, 128, 3072, true)},
      {"qwen3-1.7b", qwen3(2048, 28, 16, 8, 128, 6144, true)},
      {"qwen3-4b", qwen3(2560, 36, 32, 8, 128, 9728, true)},
      {"qwen3-8b", qwen3(4096, 36, 32, 8, 128, 12288, false)},
      {"qwen3-14b", qwen3(5120, 40, 40, 8, 128, 17408, false)},
      {"qwen3-32b", qwen3(5120, 64, 64, 8, 128, 25600, false)},
      {"qwen3-moe-tiny", qwen3_moe(qwen3(128, 4, 6, 2, 32, 384, true, 4096), 8, 2, 192)},
      {"qwen3-30b-a3b", qwen3_moe(qwen3(2048, 48, 32, 4, 128, 6144, false), 128, 8, 768)},
      {"qwen3-235b-a22b", qwen3_moe(qwen3(4096, 94, 64, 4, 128, 12288, false), 128, 8, 1536)},
      {"qwen2.5-0.5b", qwen25(896, 24, 14, 2, 4864, true)},
  };
  return list;
}

class Qwen final : public Model {
 public:
  explicit Qwen(const Options& options) : options_(options) {}
  std::vector<ModelPreset> presets() const override { return decoder::list_presets(::presets()); }
  std::unique_ptr<Architecture> from_preset(std::string_view name) const override {
    return make(decoder::find_preset(::presets(), name));
  }
  bool accepts(std::string_view a) const override {
    return a == "Qwen3ForCausalLM" || a == "Qwen2ForCausalLM" || a == "Qwen3MoeForCausalLM";
  }
  std::unique_ptr<Architecture> from_config(std::string_view json) const override {
    static constexpr decoder::Variant variants[] = {
        {.architecture = "Qwen2ForCausalLM", .model_type = "qwen2", .qkv_bias = true, .kv_heads = 32},
        {.architecture = "Qwen3ForCausalLM", .model_type = "qwen3", .qk_norm = true, .head_dim = 128, .kv_heads = 32},
        {.architecture = "Qwen3MoeForCausalLM",
         .model_type = "qwen3_moe",
         .other_model_type = "qwen3",
         .qk_norm = true,
         .head_dim = 128,
         .kv_heads = 4,
         .experts = decoder::Variant::Experts::qwen3}};
    Config config = decoder::parse_config_json(json, variants);
    if (config.architecture == "Qwen3MoeForCausalLM" && !config.mixture.any()) {
      // Seen in the wild on dense models.
      log::warn("config.json says Qwen3MoeForCausalLM but names no experts: taken as a dense Qwen3");
      config.architecture = "Qwen3ForCausalLM";
      config.model_type = "qwen3";
    }
    return make(std::move(config));
  }

 private:
  std::unique_ptr<Architecture> make(Config config) const {
    return std::make_unique<decoder::Decoder>(decoder::with_options(std::move(config), options_, "qwen"));
  }

  Options options_;
};

}  // namespace

CONSIST_PLUGIN(model, consist::Model, Qwen, "qwen", "1.0.0",
               "Qwen3, its mixtures of experts and Qwen2.5: presets, or a Hugging Face folder");
CONSIST_PLUGIN_OPTIONS(consist::decoder::router_balance_loss, consist::decoder::router_z_loss);
