// A family of presets as a Model: the code that llama, qwen and mixtral share as plugins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/model.h"
#include "consist/options.h"
#include "models/decoder/config_json.h"
#include "models/decoder/decoder.h"

namespace consist::decoder {

struct Preset {
  const char* name;
  Config config;
};

inline std::vector<ModelPreset> list_presets(const std::vector<Preset>& presets) {
  std::vector<ModelPreset> list;
  for (const Preset& preset : presets) {
    const Config& c = preset.config;
    list.push_back({preset.name,
                    std::to_string(c.layers) + " layers of " + std::to_string(c.hidden) + ", " + std::to_string(c.heads) + "/" +
                        std::to_string(c.kv_heads) + " heads of " + std::to_string(c.head_dim) + ", vocabulary " +
                        std::to_string(c.vocabulary) + (c.tied ? ", tied" : "") +
                        (c.mixture.any() ? ", " + std::to_string(c.mixture.choices) + " of " + std::to_string(c.mixture.experts) +
                                               " experts of " + std::to_string(c.mixture.ffn)
                                         : "")});
  }
  return list;
}

inline const Config& find_preset(const std::vector<Preset>& presets, std::string_view name) {
  for (const Preset& preset : presets) {
    if (name == preset.name) return preset.config;
  }
  throw UsageError("there is no preset '" + std::string(name) + "'");
}

inline std::unique_ptr<Architecture> make_preset(const std::vector<Preset>& presets, std::string_view name) {
  return std::make_unique<Decoder>(find_preset(presets, name));
}

/// Options of a family with mixtures of experts.
inline constexpr OptionSpec router_balance_loss{"router-balance-loss", OptionKind::real, "",
                                                "weight of the routers' balance loss, 0 for none; default: config.json's "
                                                "router_aux_loss_coef where its output_router_logits is "
                                                "true, else 0; of presets the coefficient of the published files",
                                                "0.."};
inline constexpr OptionSpec router_z_loss{
    "router-z-loss", OptionKind::real, "",
    "weight of the routers' z-loss, the mean of logsumexp(logits)^2 over tokens and layers; default: "
    "config.json's router_z_loss_coef, of presets 0",
    "0.."};

/// `config` with what these options say. Throws UsageError where there are no routers that they could be of.
inline Config with_options(Config config, const Options& options, const std::string& family) {
  const auto given = [&](const OptionSpec& option) {
    if (!options.has(option.name)) return false;
    if (config.mixture.any()) return true;
    throw UsageError("--" + family + "." + option.name + ": the model has no experts, and so no routers; leave the option out");
  };
  if (given(router_balance_loss)) {
    config.mixture.balance = options.real(router_balance_loss.name);
    config.mixture.trains_balance = config.mixture.balance > 0;
  }
  if (given(router_z_loss)) config.mixture.z = options.real(router_z_loss.name);
  return config;
}

}  // namespace consist::decoder
