#include "core/plan/found_model.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "consist/log.h"
#include "consist/text.h"
#include "core/base/did_you_mean.h"
#include "core/config/dataset_choices.h"
#include "core/weights/hub_cache.h"

namespace consist {
namespace {

std::string read_config(const std::filesystem::path& path) {
  try {
    return read_text(path.string(), JsonRules().most_bytes);
  } catch (const SystemError& error) {
    throw DataError(std::string(error.what()) + "; a model folder needs a config.json as Hugging Face writes it");
  }
}

/// True if --model is the text of a config.json rather than a name.
bool is_config_text(const std::string& model) {
  return model.starts_with('{');
}

/// `said` names the text in messages.
std::vector<std::string> architectures_in(const std::string& config, const std::string& said) {
  const nlohmann::json json = parse_json(config, said);
  if (!json.is_object()) throw DataError(said + " is no JSON object");
  std::vector<std::string> names;
  if (auto list = json.find("architectures"); list != json.end() && list->is_array()) {
    for (const auto& name : *list) {
      if (name.is_string()) names.push_back(name.get<std::string>());
    }
  }
  if (names.empty()) throw DataError(said + " names no \"architectures\"");
  return names;
}

struct Candidate {
  std::string plugin;
  std::shared_ptr<Model> model;
};

/// Those of the model plugins `names` that `takes` is true of. One that cannot be made is left out with a warning: a run of
/// another model does not end by it. It does if the plugin was asked for, by its name alone or by options.
template <typename Takes>
std::vector<Candidate> takers(const std::vector<std::string>& names, const RunConfig& config, PluginHost& host,
                              const Takes& takes) {
  std::vector<Candidate> found;
  for (const std::string& name : names) {
    const PluginFile& file = host.find("model", name);
    const bool asked_for = names.size() == 1 || !options_of_owner(config, name).empty();
    try {
      auto model = host.make<Model>("model", name, options_of_owner(config, name));
      if (takes(*model)) found.push_back({name, std::move(model)});
    } catch (const std::exception& error) {
      if (asked_for) throw;
      log::warn("model '" + name + "' (" + file.path.string() + ") is left out: " + error.what());
    }
  }
  return found;
}

/// Throws UsageError if several plugins take `what`: no order of names decides which of them is used.
void refuse_several(const std::vector<Candidate>& candidates, const RunConfig& config, const std::string& what,
                    PluginHost& host) {
  if (candidates.size() < 2) return;
  std::string message = "--model " + config.model + ": " + what + " is offered by several plugins:";
  for (const Candidate& candidate : candidates)
    message += " " + candidate.plugin + " (" + host.find("model", candidate.plugin).path.string() + ")";
  throw UsageError(message + "; say which: --model " + candidates.front().plugin + ":" + config.model);
}

/// `said` names the text in messages.
FoundModel model_from_config(const RunConfig& config, PluginHost& host, const std::vector<std::string>& names,
                             const std::string& text, const std::string& said) {
  const std::vector<std::string> architectures = architectures_in(text, said);
  const std::vector<Candidate> candidates = takers(names, config, host, [&](const Model& model) {
    return std::any_of(architectures.begin(), architectures.end(), [&](const std::string& a) { return model.accepts(a); });
  });
  refuse_several(candidates, config, "the architecture '" + architectures.front() + "'", host);
  if (candidates.empty())
    throw DataError(said + ": no model plugin knows the architecture " + in_quotes(architectures.front()) +
                    " (see consist plugins)");
  const Candidate& only = candidates.front();
  try {
    return {only.model, only.plugin, only.model->from_config(text), ""};
  } catch (const DataError& error) {
    throw DataError(said + ": " + error.what());
  }
}

FoundModel model_from_folder(const RunConfig& config, PluginHost& host, const std::vector<std::string>& names,
                             const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "config.json";
  FoundModel found = model_from_config(config, host, names, read_config(path), path.string());
  found.folder = folder;
  return found;
}

std::string folder_of_hub(const std::string& model) {
  const HubModel named = hub_model(model);
  std::string folder = cached_folder(named);
  if (folder.empty()) throw UsageError("--model " + model + " is not on this machine; " + how_to_download(named));
  return folder;
}

FoundModel model_from_preset(const RunConfig& config, PluginHost& host, const std::vector<std::string>& names) {
  std::string known;
  std::vector<KnownName> presets;
  const std::vector<Candidate> candidates = takers(names, config, host, [&](const Model& model) {
    bool offered = false;
    for (const ModelPreset& preset : model.presets()) {
      known += " " + preset.name;
      presets.push_back({preset.name});
      offered |= preset.name == config.model;
    }
    return offered;
  });
  refuse_several(candidates, config, "the preset", host);
  if (!candidates.empty()) {
    const Candidate& only = candidates.front();
    return {only.model, only.plugin, only.model->from_preset(config.model), ""};
  }
  std::string refused;
  for (const PluginFile& file : host.files()) {
    if (!file.problem.empty()) refused += "\n  not used: " + file.path.string() + ": " + file.problem;
  }
  throw UsageError("--model '" + config.model + "' is neither a folder nor a preset. Presets:" +
                   (known.empty() ? " none" : known) + "." + did_you_mean(config.model, presets) + refused);
}

}  // namespace

FoundModel find_model(const RunConfig& config, PluginHost& host) {
  RunConfig asked = config;
  std::vector<std::string> names = host.names("model");
  const std::size_t colon = config.model.find(':');
  const std::string plugin = config.model.substr(0, colon);
  const bool installed = std::any_of(host.files().begin(), host.files().end(),
                                     [&](const PluginFile& file) { return file.kind == "model" && file.name == plugin; });
  if (colon != std::string::npos && installed) {
    names = {plugin};
    asked.model.erase(0, colon + 1);
  }
  std::error_code ignored;
  if (is_config_text(asked.model))
    return model_from_config(asked, host, names, asked.model, "--model, the text of a config.json");
  if (std::filesystem::is_directory(asked.model, ignored)) return model_from_folder(asked, host, names, asked.model);
  if (is_hub_model(asked.model)) return model_from_folder(asked, host, names, folder_of_hub(asked.model));
  return model_from_preset(asked, host, names);
}

std::string model_text(const RunConfig& config) {
  if (!is_config_text(config.model)) return config.model;
  const nlohmann::json json = nlohmann::json::parse(config.model, nullptr, false);
  const auto part = [&](const char* name) { return json.is_object() && json.contains(name) ? shown(json[name], 60) : "?"; };
  return part("architectures") + " of " + part("num_hidden_layers") + " layers of " + part("hidden_size");
}

ModelSizes model_sizes(const RunConfig& config, PluginHost& host) {
  return find_model(config, host).architecture->sizes();
}

}  // namespace consist
