#include "launch/compare/request.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/text.h"
#include "core/config/option_table.h"
#include "launch/cli/config_of_archive.h"
#include "launch/cli/plugin_options.h"

namespace consist::launch {
namespace {

int read_repeats(const std::string& text) {
  int repeats = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), repeats);
  if (error != std::errc() || end != text.data() + text.size() || repeats < 1 || repeats > 1000)
    throw UsageError("--repeats is '" + text + "'; it must be a whole number from 1 to 1000");
  return repeats;
}

/// True if the option of that name is on the command line.
bool is_given(const std::vector<std::string>& words, const std::string& name) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word == "--" + name || word.starts_with("--" + name + "="); });
}

void say(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fprintf(stderr, "%s\n", printable(note).c_str());
}

}  // namespace

CompareRequest read_compare_request(const std::vector<std::string>& arguments) {
  CompareRequest request;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    const auto value = [&](const char* what) {
      if (equals != std::string::npos) return arguments[i].substr(equals + 1);
      if (i + 1 == arguments.size()) throw UsageError(name + " needs " + what);
      return arguments[++i];
    };
    if (name == "--output") {
      request.output = value("a folder");
      request.has_output = true;
    } else if (name == "--archive") {
      throw UsageError("compare names the archives itself, in the folder of --output; leave --archive out");
    } else if (name == "--config") {
      if (!request.config.empty()) throw UsageError("--config is given twice");
      request.config = value("a file");
    } else if (name == "--print-config") {
      throw UsageError("--print-config writes one configuration; give it to consist train");
    } else if (name == "--overwrite") {
      request.overwrite = true;
    } else if (name == "--predict") {
      if (equals != std::string::npos) throw UsageError("--predict takes no value");
      request.predict = true;
    } else if (name == "--report") {
      request.report = value("a file");
      if (request.report.empty()) throw UsageError("--report needs the name of a file");
    } else if (name == "--repeats") {
      request.repeats = read_repeats(value("a number"));
    } else if (name == "--add") {
      request.add.push_back(value("archives"));
      while (equals == std::string::npos && i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"))
        request.add.push_back(arguments[++i]);
    } else {
      request.train.push_back(arguments[i]);
    }
  }
  const char* of_runs = request.repeats > 0    ? "--repeats"
                        : request.overwrite    ? "--overwrite"
                        : request.has_output   ? "--output"
                        : !request.add.empty() ? "--add"
                                               : nullptr;
  if (request.predict && of_runs != nullptr)
    throw UsageError(std::string("--predict runs nothing and writes nothing, so that ") + of_runs +
                     " has no meaning beside it; leave one of them out");
  return request;
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
