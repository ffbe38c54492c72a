// Models by name, "hf://ORG/NAME" or "hf://ORG/NAME@REVISION", in the cache that huggingface_hub keeps on this machine (layout: its
// guide "Understand caching"). Nothing is downloaded here.
#pragma once

#include <string>

#include "consist/export.h"

namespace consist {

struct HubModel {
  std::string name;      ///< "Qwen/Qwen3-0.6B"
  std::string revision;  ///< a branch, tag or commit: "main"
};

/// True if --model names a model of the hub.
CONSIST_API bool is_hub_model(const std::string& model);

/// Throws UsageError unless `model` has that form.
CONSIST_API HubModel hub_model(const std::string& model);

/// The folder of the cache: $HF_HUB_CACHE, $HF_HOME/hub, else ~/.cache/huggingface/hub.
CONSIST_API std::string hub_cache();

/// The model's folder in the cache; empty if that has no config.json of it.
CONSIST_API std::string cached_folder(const HubModel& model);

/// Says how to get the model: "`hf download Qwen/Qwen3-0.6B` (...) brings it to ...".
CONSIST_API std::string how_to_download(const HubModel& model);

}  // namespace consist
