#include "launch/cli/file_options.h"

#include <string>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "core/config/option_table.h"
#include "core/plan/found_model.h"
#include "core/plan/parts.h"
#include "launch/import/deepspeed_config.h"
#include "launch/import/python_reader.h"

namespace consist {
namespace {

/// True if the command line, or the file of --config, gives the option a value of its own.
bool is_given(const ParsedRun& parsed, const std::string& option) {
  return parsed.has(option) && !is_from_file(parsed, option);
}

ReaderRequest request_of(const ParsedRun& parsed, const std::string& path, bool each_key, PluginHost& host,
                         const RunConfig& config) {
  ReaderRequest request{.path = path, .replacements = parsed.texts("from-set"), .each_key = each_key};
  for (const RunOption& option : run_option_table()) {
    if (option.get != nullptr && is_given(parsed, option.spec.name)) request.given[option.spec.name] = text_in(config, option);
  }
  for (const auto& [owner, options] : config.plugin_options) {
    for (const auto& [name, value] : options) request.given[owner + "." + name] = value;
  }
  if (is_given(parsed, "model")) request.sizes = model_sizes(config, host);
  return request;
}

/// Returns the DeepSpeed JSON that is to be read besides; empty if there is none.
std::string set_options(const ReaderReply& reply, const std::string& path, RunConfig& config) {
  std::string deepspeed;
  for (const auto& [name, value] : reply.options) {
    const std::size_t dot = name.find('.');
    const RunOption* const option = find_run_option(name);
    if (dot != std::string::npos) {
      config.plugin_options[name.substr(0, dot)][name.substr(dot + 1)] = value;
    } else if (name == "deepspeed-config") {
      deepspeed = value;
    } else if (option == nullptr || option->set == nullptr) {
      throw SystemError("--from " + path + ": its reader sets --" + name + ", which there is not; install Consist whole");
    } else {
      set_option(config, *option, value, "--from " + path + ": " + name);
    }
  }
  return deepspeed;
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
  const bool each_key = parsed.flag("from-notes") || parsed.flag("print-config");
  if (path.empty()) {
    const readers::ReaderContext context{.given = [&](const std::string& option) { return parsed.has(option); },
                                         .sizes = [&] { return model_sizes(config, host); },
                                         .replacements = parsed.texts("deepspeed-set"),
                                         .each_key = each_key};
    return apply_deepspeed_config(deepspeed, context, config);
  }
  const PluginOptions given_to_plugins = config.plugin_options;
  const ReaderReply reply = ask_readers(request_of(parsed, path, each_key, host, config));
  std::set<std::string> stated = reply.stated;
  const std::string named = set_options(reply, path, config);
  config.notes.insert(config.notes.end(), reply.notes.begin(), reply.notes.end());
  if (!named.empty()) {
    const readers::ReaderContext context{
        .given = [&](const std::string& option) { return is_given(parsed, option) || reply.stated.contains(option); },
        .sizes = [&] { return model_sizes(config, host); },
        .replacements = reply.format == "deepspeed" ? parsed.texts("from-set") : std::vector<std::string>{},
        .each_key = each_key};
    stated.merge(apply_deepspeed_config(named, context, config, DeepspeedSource::other_file));
  }
  drop_stray_options("--from", given_to_plugins, host, config);
  return stated;
}

}  // namespace consist
