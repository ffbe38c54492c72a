// A family of presets as a Model: what llama and qwen have in common as plugins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/model.h"
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

inline std::unique_ptr<Architecture> make_preset(const std::vector<Preset>& presets, std::string_view name) {
  for (const Preset& preset : presets) {
    if (name == preset.name) return std::make_unique<Decoder>(preset.config);
  }
  throw UsageError("there is no preset '" + std::string(name) + "'");
}

}  // namespace consist::decoder
