// Mixtral (Jiang et al., 2024): a Llama whose layers have experts, of which each token meets two.
#include "consist/plugin.h"
#include "models/decoder/family.h"

namespace {

using namespace consist;
using decoder::Config;

Config mixtral(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn,
               std::int64_t vocabulary, std::int64_t max_positions) {
  return {.architecture = "MixtralForCausalLM",
          .model_type = "mixtral",
          .vocabulary = vocabulary,
          .hidden = hidden,
          .layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = hidden / heads,
          .ffn = ffn,
          .max_positions = max_positions,
          .rope_theta = 1e6,
          .norm_epsilon = 1e-5,
          .mixture = {.experts = 8,
                      .choices = 2,
                      .ffn = ffn,
                      .balance = 0.02,
                      .trains_balance = true,
                      .sparse = std::vector<bool>(static_cast<std::size_t>(layers), true),
                      .names = decoder::MixtureConfig::Names::mixtral}};
}

/// Sizes as in the published config.json files, and a tiny one.
const std::vector<decoder::Preset>& presets() {
  static const std::vector<decoder::Preset> list{
      {"mixtral-tiny", mixtral(160, 4, 5, 1, 224, 4096, 2048)},
      {"mixtral-8x7b", mixtral(4096, 32, 32, 8, 14336, 32000, 32768)},
      {"mixtral-8x22b", mixtral(6144, 56, 48, 8, 16384, 32000, 65536)},
  };
  return list;
}

class Mixtral final : public Model {
 public:
  explicit Mixtral(const Options& options) : options_(options) {}
  std::vector<ModelPreset> presets() const override { return decoder::list_presets(::presets()); }
  std::unique_ptr<Architecture> from_preset(std::string_view name) const override {
    return make(decoder::find_preset(::presets(), name));
  }
  bool accepts(std::string_view architecture) const override { return architecture == "MixtralForCausalLM"; }
  std::unique_ptr<Architecture> from_config(std::string_view json) const override {
    static constexpr decoder::Variant variants[] = {{.architecture = "MixtralForCausalLM",
                                                     .model_type = "mixtral",
                                                     .kv_heads = 8,
                                                     .rope_theta = 1e6,
                                                     .norm_epsilon = 1e-5,
                                                     .experts = decoder::Variant::Experts::mixtral,
                                                     .expert_count = 8,
                                                     .has_window_switch = false}};
    return make(decoder::parse_config_json(json, variants));
  }

 private:
  std::unique_ptr<Architecture> make(Config config) const {
    return std::make_unique<decoder::Decoder>(decoder::with_options(std::move(config), options_, "mixtral"));
  }

  Options options_;
};

}  // namespace

CONSIST_PLUGIN(model, consist::Model, Mixtral, "mixtral", "1.0.0", "Mixtral 8x7B and 8x22B: presets, or a Hugging Face folder");
CONSIST_PLUGIN_OPTIONS(consist::decoder::router_balance_loss, consist::decoder::router_z_loss);
