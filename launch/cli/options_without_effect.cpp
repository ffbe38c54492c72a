#include "launch/cli/options_without_effect.h"

#include <algorithm>

#include "core/config/dataset_choices.h"
#include "core/config/option_table.h"
#include "core/config/option_value.h"

namespace consist {
namespace {

std::string no_effect(const std::string& option, const std::string& needed) {
  return "--" + option + " has no effect here; it needs " + needed;
}

/// Adds lines for the core's options.
void add_own(const std::function<bool(const std::string&)>& given, const RunConfig& config, std::vector<std::string>& lines) {
  for (const RunOption& option : run_option_table()) {
    if (*option.spec.needs == '\0' || !given(option.spec.name)) continue;
    const RunOption& needed = *find_run_option(option.spec.needs);
    if (text_in(config, needed) == needed.spec.fallback)
      lines.push_back(no_effect(option.spec.name, std::string("--") + needed.spec.name + " " + needed.value));
  }
}

/// The options with which what `owner` names is made: several where datasets of the kind take from it what they do not have
/// themselves.
std::vector<std::map<std::string, std::string>> uses_of(const std::string& owner, const RunConfig& config) {
  std::vector<std::map<std::string, std::string>> uses;
  for (const DatasetChoice& dataset : parse_datasets(config.dataset)) {
    if (dataset.name == owner || dataset.plugin == owner) uses.push_back(options_of_owner(config, dataset.name));
  }
  if (uses.empty()) uses.push_back(config.plugin_options.at(owner));
  return uses;
}

}  // namespace

std::vector<std::string> options_without_effect(const std::function<bool(const std::string&)>& given, const RunConfig& config,
                                                const PluginOptions& given_to_plugins, PluginHost& host) {
  std::vector<std::string> lines;
  add_own(given, config, lines);
  for (const auto& [owner, options] : given_to_plugins) {
    const std::vector<std::map<std::string, std::string>> uses = uses_of(owner, config);
    for (const PluginFile& file : host.files()) {
      if (file.name != plugin_of(owner) || !file.problem.empty()) continue;
      const std::vector<OptionSpec> table = host.option_table(file.kind, file.name);
      for (const OptionSpec& spec : table) {
        const OptionNeed need = need_of(spec);
        if (options.count(spec.name) == 0) continue;
        const auto is_met = [&](const auto& values) { return need.is_met_by(value_of(table, values, need.option)); };
        if (std::any_of(uses.begin(), uses.end(), is_met)) continue;
        std::string shown;
        for (const std::string& value : need.values) shown += (shown.empty() ? "" : ",") + value;
        lines.push_back(
            no_effect(owner + "." + spec.name, "--" + owner + "." + need.option + " " + (shown.empty() ? "''" : shown)));
      }
    }
  }
  return lines;
}

}  // namespace consist
