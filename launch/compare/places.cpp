#include "launch/compare/places.h"

#include "core/config/option_table.h"
#include "core/plugin/option_roles.h"

namespace consist::launch {

std::string place_of(const std::string& option, const std::filesystem::path& given, const std::string& label) {
  if (option == "--trace" || option.ends_with(".file"))
    return (given.parent_path() / (given.stem().string() + "-" + label + given.extension().string())).string();
  return (given / label).string();
}

bool is_place(const std::string& option, PluginHost& host) {
  if (const RunOption* const of_run = find_run_option(option)) return is_place_of_results(*of_run);
  return option.find('.') != std::string::npos && role_of(option, host) == OptionRole::results;
}

RunConfig config_in_place(RunConfig config, const std::string& label, PluginHost& host) {
  if (label.empty()) return config;
  for (const RunOption& option : run_option_table()) {
    const std::string given = is_place_of_results(option) ? text_in(config, option) : "";
    if (!given.empty()) option.set(config, place_of(std::string("--") + option.spec.name, given, label));
  }
  for (auto& [owner, options] : config.plugin_options) {
    for (auto& [name, value] : options) {
      if (is_place(owner + "." + name, host)) value = place_of("--" + owner + "." + name, value, label);
    }
  }
  return config;
}

}  // namespace consist::launch
