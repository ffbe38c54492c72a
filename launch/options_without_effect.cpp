#include "launch/options_without_effect.h"

#include <algorithm>
#include <string_view>

namespace consist {
namespace {

std::string no_effect(const std::string& option, const std::string& needed) {
  return "--" + option + " has no effect here; it needs " + needed;
}

/// Adds lines for the core's options.
void add_own(const std::function<bool(const std::string&)>& given, const RunConfig& config, std::vector<std::string>& lines) {
  struct Rule {
    const char* option;
    bool has_effect;
    const char* needed;
  };
  const bool checkpoints = !config.checkpoint.empty();
  const Rule rules[] = {
      {"recompute-layers", config.recompute.any(), "--recompute"},
      {"checkpoint-keep", checkpoints, "--checkpoint FOLDER"},
      {"evaluate-sequences", config.evaluate_every > 0, "--evaluate-every STEPS"},
  };
  for (const Rule& rule : rules) {
    if (given(rule.option) && !rule.has_effect) lines.push_back(no_effect(rule.option, rule.needed));
  }
}

/// The value of `name` in a run: what was given, or its fallback.
std::string value_of(const std::vector<OptionSpec>& table, const std::map<std::string, std::string>& given,
                     std::string_view name) {
  const auto spec = std::find_if(table.begin(), table.end(), [&](const OptionSpec& s) { return s.name == name; });
  if (spec == table.end()) return {};
  const auto found = given.find(spec->name);
  Options options;  // which writes "yes" and "on" as "true"
  if (found == given.end()) {
    options.set_fallback(*spec);
  } else {
    options.set(*spec, found->second);
  }
  return options.all().begin()->second;
}

bool is_one_of(std::string_view value, std::string_view list) {
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find('|', begin), list.size());
    if (list.substr(begin, end - begin) == value) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::vector<std::string> options_without_effect(const std::function<bool(const std::string&)>& given, const RunConfig& config,
                                                const PluginOptions& given_to_plugins, PluginHost& host) {
  std::vector<std::string> lines;
  add_own(given, config, lines);
  for (const auto& [owner, options] : given_to_plugins) {
    const std::map<std::string, std::string>& values = config.plugin_options.at(owner);
    for (const PluginFile& file : host.files()) {
      if (file.name != owner || !file.problem.empty()) continue;
      const std::vector<OptionSpec> table = host.option_table(file.kind, file.name);
      for (const OptionSpec& spec : table) {
        const std::string_view needs = spec.needs;
        if (needs.empty() || options.count(spec.name) == 0) continue;
        const std::size_t equals = std::min(needs.find('='), needs.size());
        const std::string_view other = needs.substr(0, equals), legal = needs.substr(std::min(equals + 1, needs.size()));
        if (is_one_of(value_of(table, values, other), legal)) continue;
        std::string shown(legal);
        std::replace(shown.begin(), shown.end(), '|', ',');
        lines.push_back(
            no_effect(owner + "." + spec.name, "--" + owner + "." + std::string(other) + " " + (shown.empty() ? "''" : shown)));
      }
    }
  }
  return lines;
}

}  // namespace consist
