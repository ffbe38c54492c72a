#include "core/plugin/option_roles.h"

#include "core/config/dataset_choices.h"
#include "core/config/option_table.h"

namespace consist {

namespace {

OptionRole role(const std::string& option, PluginHost& host, bool with_observers) {
  if (const RunOption* const of_run = find_run_option(option)) return of_run->spec.role;
  const std::size_t dot = option.find('.');
  if (dot == std::string::npos) return OptionRole::setting;
  const std::string owner = option.substr(0, dot), name = option.substr(dot + 1);
  for (const PluginFile& file : host.files()) {
    const bool is_owner = file.name == owner || (file.kind == "dataset" && file.name == plugin_of(owner));
    if (!is_owner || !file.problem.empty()) continue;
    for (const OptionSpec& spec : host.option_table(file.kind, file.name)) {
      if (name != spec.name) continue;
      if (spec.role != OptionRole::setting) return spec.role;
      if (with_observers && file.kind == "observer") return OptionRole::results;
    }
  }
  return OptionRole::setting;
}

}  // namespace

OptionRole role_of(const std::string& option, PluginHost& host) {
  return role(option, host, false);
}

OptionRole role_in_file(const std::string& option, PluginHost& host) {
  return role(option, host, true);
}

}  // namespace consist
