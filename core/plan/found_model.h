// The model that --model names: a preset, a folder, a model of the hub's cache, or the text of a config.json.
#pragma once

#include <memory>
#include <string>

#include "consist/model.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"

namespace consist {

struct FoundModel {
  std::shared_ptr<Model> model;  ///< made the architecture; kept for its code's sake
  std::string plugin;
  std::shared_ptr<Architecture> architecture;
  std::string folder;  ///< empty where the weights have none
};

/// The model of whichever plugin takes --model PRESET, FOLDER, hf://ORG/NAME or the text of a config.json, or of PLUGIN in
/// PLUGIN:PRESET and PLUGIN:FOLDER. Throws UsageError if none or several take it, DataError for a config.json that is none.
FoundModel find_model(const RunConfig& config, PluginHost& host);

/// Text that names the config's model: --model as it was given; of the text of a config.json its architecture and sizes.
CONSIST_API std::string model_text(const RunConfig& config);

/// The sizes of the config's model. Throws what find_model throws.
CONSIST_API ModelSizes model_sizes(const RunConfig& config, PluginHost& host);

}  // namespace consist
