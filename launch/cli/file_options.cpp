#include "launch/cli/file_options.h"

#include <algorithm>
#include <utility>

#include "consist/error.h"
#include "core/config/option_value.h"
#include "core/plan/parts.h"
#include "launch/import/deepspeed_config.h"
#include "launch/import/trainer_file.h"

namespace consist {
namespace {

/// True if a strategy has that option ("cp.attention"), which may have that value.
bool has_choice(const std::string& option, const std::string& value, PluginHost& host) {
  const std::size_t dot = option.find('.');
  for (const OptionSpec& spec : host.option_table("strategy", option.substr(0, dot))) {
    if (option.substr(dot + 1) != spec.name || spec.kind != OptionKind::choice) continue;
    const std::vector<std::string> legal = choices_of(spec);
    return std::find(legal.begin(), legal.end(), value) != legal.end();
  }
  return false;
}

}  // namespace

void drop_stray_options(const std::string& file, const PluginOptions& of_command_line, PluginHost& host, RunConfig& config) {
  for (const std::string& owner : stray_owners(config, host)) {
    if (of_command_line.contains(owner) && !of_command_line.at(owner).empty()) continue;
    config.notes.push_back(file + ": what it says of '" + owner + "' has no effect beside the command line's choices");
    config.plugin_options.erase(owner);
  }
}

bool is_from_file(const ParsedRun& parsed, const std::string& option) {
  return option != "from" && parsed.has("from") && parsed.text(option) == "from";
}

std::set<std::string> read_trainer_file(const ParsedRun& parsed, PluginHost& host, RunConfig& config) {
  for (const auto& [set, file] : {std::pair{"deepspeed-set", "deepspeed-config"}, std::pair{"from-set", "from"}}) {
    if (parsed.has(set) && parsed.text(file).empty())
      throw UsageError("--" + std::string(set) + " " + parsed.text(set) + " is given, but no --" + file +
                       " FILE whose value it could replace");
  }
  const std::string path = parsed.text("from"), deepspeed = parsed.text("deepspeed-config");
  if (!path.empty() && !deepspeed.empty())
    throw UsageError("--from " + path + " is given beside --deepspeed-config " + deepspeed + "; leave one of them out");
  if (path.empty() && deepspeed.empty()) {
    if (parsed.has("from-notes") && parsed.flag("from-notes"))
      throw UsageError("--from-notes is given, but no --from FILE or --deepspeed-config FILE whose keys it could tell of");
    return {};
  }
  const readers::ReaderContext context{
      .given = [&](const std::string& option) { return parsed.has(option) && !is_from_file(parsed, option); },
      .sizes = [&] { return model_sizes(config, host); },
      .has_choice = [&](const std::string& option, const std::string& value) { return has_choice(option, value, host); },
      .replacements = parsed.texts(path.empty() ? "deepspeed-set" : "from-set"),
      .each_key = parsed.flag("from-notes") || parsed.flag("print-config")};
  if (path.empty()) return apply_deepspeed_config(deepspeed, context, config);
  const PluginOptions given_to_plugins = config.plugin_options;
  std::set<std::string> stated = apply_trainer_file(path, context, config);
  drop_stray_options("--from", given_to_plugins, host, config);
  return stated;
}

}  // namespace consist
