// Llama 2, 3, 3.1 and 3.2 (Touvron et al., 2023; Grattafiori et al., 2024).
#include "consist/plugin.h"
#include "models/decoder/family.h"

namespace {

using namespace consist;
using decoder::Config;

constexpr RopeScaling llama31{.kind = RopeScaling::Kind::llama3, .factor = 8};
constexpr RopeScaling llama32{.kind = RopeScaling::Kind::llama3, .factor = 32};

/// Sizes as in the published config.json files.
Config llama(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn,
             std::int64_t vocabulary, std::int64_t positions, double theta, RopeScaling scaling = {}, bool tied = false) {
  return {.vocabulary = vocabulary,
          .hidden = hidden,
          .layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = hidden / heads,
          .ffn = ffn,
          .max_positions = positions,
          .rope_theta = theta,
          .rope_scaling = scaling,
          .norm_epsilon = 1e-5,
          .tied = tied};
}

const std::vector<decoder::Preset>& presets() {
  static const std::vector<decoder::Preset> list{
      {"llama-tiny", llama(160, 4, 5, 1, 448, 4096, 2048, 10000)},
      {"llama-32m", llama(512, 8, 8, 8, 1408, 8192, 4096, 10000)},
      {"llama-100m", llama(768, 10, 12, 4, 2048, 16384, 4096, 500000)},
      {"llama-2-7b", llama(4096, 32, 32, 32, 11008, 32000, 4096, 10000)},
      {"llama-2-13b", llama(5120, 40, 40, 40, 13824, 32000, 4096, 10000)},
      {"llama-2-70b", llama(8192, 80, 64, 8, 28672, 32000, 4096, 10000)},
      {"llama-3-8b", llama(4096, 32, 32, 8, 14336, 128256, 8192, 500000)},
      {"llama-3-70b", llama(8192, 80, 64, 8, 28672, 128256, 8192, 500000)},
      {"llama-3.1-8b", llama(4096, 32, 32, 8, 14336, 128256, 131072, 500000, llama31)},
      {"llama-3.1-70b", llama(8192, 80, 64, 8, 28672, 128256, 131072, 500000, llama31)},
      {"llama-3.2-1b", llama(2048, 16, 32, 8, 8192, 128256, 131072, 500000, llama32, true)},
      {"llama-3.2-3b", llama(3072, 28, 24, 8, 8192, 128256, 131072, 500000, llama32, true)},
  };
  return list;
}

class Llama final : public Model {
 public:
  explicit Llama(const Options& /*options*/) {}
  std::vector<ModelPreset> presets() const override { return decoder::list_presets(::presets()); }
  std::unique_ptr<Architecture> from_preset(std::string_view name) const override {
    return decoder::make_preset(::presets(), name);
  }
  bool accepts(std::string_view architecture) const override { return architecture == "LlamaForCausalLM"; }
  std::unique_ptr<Architecture> from_config(std::string_view json) const override {
    static constexpr decoder::Variant variants[] = {
        {.architecture = "LlamaForCausalLM", .model_type = "llama", .has_window_switch = false}};
    return std::make_unique<decoder::Decoder>(decoder::parse_config_json(json, variants));
  }
};

}  // namespace

CONSIST_PLUGIN(model, consist::Model, Llama, "llama", "1.0.0", "Llama 2, 3, 3.1, 3.2: presets, or a Hugging Face folder");
CONSIST_PLUGIN_NO_OPTIONS();
