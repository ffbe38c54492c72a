#include "launch/compare/places.h"

#include "core/plugin/option_roles.h"

namespace consist::launch {

std::string place_of(const std::string& option, const std::filesystem::path& given, const std::string& label) {
  if (option == "--trace" || option.ends_with(".file"))
    return (given.parent_path() / (given.stem().string() + "-" + label + given.extension().string())).string();
  return (given / label).string();
}

bool is_place(const std::string& option, PluginHost& host) {
  if (option == "checkpoint" || option == "export" || option == "trace") return true;
  return option.find('.') != std::string::npos && role_of(option, host) == OptionRole::results;
}

RunConfig config_in_place(RunConfig config, const std::string& label, PluginHost& host) {
  if (label.empty()) return config;
  if (!config.checkpoint.empty()) config.checkpoint = place_of("--checkpoint", config.checkpoint, label);
  if (!config.export_folder.empty()) config.export_folder = place_of("--export", config.export_folder, label);
  if (!config.trace.empty()) config.trace = place_of("--trace", config.trace, label);
  for (auto& [owner, options] : config.plugin_options) {
    for (auto& [name, value] : options) {
      if (is_place(owner + "." + name, host)) value = place_of("--" + owner + "." + name, value, label);
    }
  }
  return config;
}

}  // namespace consist::launch
