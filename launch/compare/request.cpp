#include "launch/compare/request.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/text.h"
#include "core/config/option_table.h"
#include "launch/cli/config_of_archive.h"
#include "launch/cli/plugin_options.h"

namespace consist::launch {
namespace {

/// True if the option of that name is on the command line.
bool is_given(const std::vector<std::string>& words, const std::string& name) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word == "--" + name || word.starts_with("--" + name + "="); });
}

void say(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fprintf(stderr, "%s\n", printable(note).c_str());
}

}  // namespace

CompareRequest read_compare_request(const CommandLine& line) {
  if (line.has("archive")) throw UsageError("compare names the archives itself, in the folder of --output; leave --archive out");
  if (line.has("print-config")) throw UsageError("--print-config writes one configuration; give it to consist train");
  if (line.has("report") && line.text("report").empty()) throw UsageError("--report needs the name of a file");
  CompareRequest request{.train = words_of_others(line, {"config", "json"}),
                         .config = line.text("config"),
                         .output = line.value("output"),
                         .has_output = line.has("output"),
                         .overwrite = line.flag("overwrite"),
                         .predict = line.flag("predict"),
                         .repeats = static_cast<int>(line.integer("repeats")),
                         .add = line.texts("add"),
                         .plugins = {},
                         .command = {"consist", "compare"},
                         .report = line.text("report"),
                         .cluster = {},
                         .dry_run = line.flag("dry-run"),
                         .owners_of_file = {}};
  request.command.insert(request.command.end(), line.arguments.begin(), line.arguments.end());
  const char* of_runs = request.repeats > 0    ? "--repeats"
                        : request.overwrite    ? "--overwrite"
                        : request.has_output   ? "--output"
                        : !request.add.empty() ? "--add"
                                               : nullptr;
  if (request.predict && of_runs != nullptr)
    throw UsageError(std::string("--predict runs nothing and writes nothing, so that ") + of_runs +
                     " has no meaning beside it; leave one of them out");
  if (is_on_cluster(line)) {
    if (request.predict) throw UsageError("--predict runs nothing, so that --on has no meaning beside it; leave one of them out");
    request.cluster = make_cluster(line);
  }
  return request;
}

void settle_ranks(CompareRequest& request) {
  if (request.cluster && !request.train.empty() && !is_given(request.train, "ranks"))
    request.train.push_back("--ranks=" + std::to_string(request.cluster->settings().ranks()));
}

std::vector<ConfigEntry> entries_of(const CompareRequest& request) {
  if (request.config.empty()) return {};
  if (!is_archive_name(request.config)) return read_config_file(request.config);
  const auto given = [&](const std::string& name) { return is_given(request.train, name); };
  std::vector<std::string> notes;
  std::vector<ConfigEntry> entries = config_of_archive(request.config, given, notes);
  say(notes);
  return entries;
}

std::set<std::string> owners_of(const std::vector<ConfigEntry>& entries, const CompareRequest& request) {
  std::set<std::string> owners;
  for (const ConfigEntry& entry : entries) {
    const std::size_t dot = entry.name.find('.');
    if (dot == std::string::npos) continue;
    const std::string owner = entry.name.substr(0, dot);
    const bool given = std::any_of(request.train.begin(), request.train.end(),
                                   [&](const std::string& word) { return word.starts_with("--" + owner + "."); });
    if (!given) owners.insert(owner);
  }
  return owners;
}

void spell_options(std::vector<ConfigEntry>& entries, CompareRequest& request, PluginHost& host) {
  for (ConfigEntry& entry : entries) entry.name = spelled(entry.name, host);
  std::vector<std::string> notes;
  spell_words(request.train, host, notes);
  say(notes);
}

void leave_out_roles(std::vector<ConfigEntry>& entries, const CompareRequest& request, PluginHost& host) {
  std::vector<std::string> notes;
  consist::leave_out_roles(
      entries, [&](const std::string& name) { return is_given(request.train, name); }, host, notes);
  say(notes);
}

std::vector<std::string> plugin_paths_of(const CompareRequest& request, const std::vector<ConfigEntry>& entries) {
  std::vector<std::string> paths;
  const std::vector<std::string>& words = request.train;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with("--plugin=")) paths.push_back(words[i].substr(9));
    if (words[i] == "--plugin" && i + 1 < words.size()) paths.push_back(words[i + 1]);
  }
  if (!paths.empty()) return paths;
  for (const ConfigEntry& entry : entries) {
    if (entry.name != "plugin") continue;
    for (const auto& path : entry.value.is_array() ? entry.value : nlohmann::json::array({entry.value}))
      paths.push_back(option_text(find_run_option("plugin")->spec, path, entry));
  }
  return paths;
}

}  // namespace consist::launch
