#include "launch/cli/plugin_options.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <utility>

#include "consist/error.h"
#include "consist/text.h"
#include "core/base/did_you_mean.h"
#include "core/base/option_name.h"
#include "core/config/dataset_choices.h"
#include "core/config/option_table.h"
#include "core/config/option_value.h"
#include "core/plugin/option_roles.h"
#include "launch/cli/command_line_style.h"
#include "launch/cli/left_out.h"

namespace consist {

namespace po = boost::program_options;

namespace {

/// True if options called `owner` may be those of the plugin: its name, or for datasets also NAME@ANOTHER (dataset_choices.h).
bool is_owner_of(const std::string& owner, const PluginFile& file) {
  return file.name == owner || (file.kind == "dataset" && file.name == plugin_of(owner));
}

/// Option tables of the plugins that are called `owner` (kinds may share a name), as one.
std::vector<OptionSpec> options_of_plugins(const std::string& owner, PluginHost& host) {
  std::vector<OptionSpec> all;
  for (const PluginFile& file : host.files()) {
    if (!is_owner_of(owner, file) || !file.problem.empty()) continue;
    for (const OptionSpec& spec : host.option_table(file.kind, file.name)) {
      if (std::none_of(all.begin(), all.end(), [&](const OptionSpec& s) { return std::string_view(s.name) == spec.name; }))
        all.push_back(spec);
    }
  }
  return all;
}

/// "ddp", "bucket-size"
std::pair<std::string, std::string> parts_of(const std::string& option) {
  const std::size_t dot = option.find('.');
  return {option.substr(0, dot), dot == std::string::npos ? "" : option.substr(dot + 1)};
}

}  // namespace

std::optional<OptionSpec> spec_of_plugin(const std::string& option, PluginHost& host) {
  const auto [owner, name] = parts_of(option);
  const std::vector<OptionSpec> table = options_of_plugins(owner, host);
  for (const OptionSpec& spec : table) {
    if (name == spec.name) return spec;
  }
  for (const OptionSpec& spec : table) {
    if (with_dashes(name) == with_dashes(spec.name)) return spec;
  }
  return std::nullopt;
}

std::string spelled(const std::string& option, PluginHost& host) {
  const std::optional<OptionSpec> spec = spec_of_plugin(option, host);
  return spec ? parts_of(option).first + "." + spec->name : option;
}

void spell_words(std::vector<std::string>& words, PluginHost& host, std::vector<std::string>& notes) {
  for (std::string& word : words) {
    const std::size_t end = std::min(word.find('='), word.size());
    if (!word.starts_with("--") || word.substr(0, end).find('.') == std::string::npos) continue;
    const std::string given = word.substr(2, end - 2), name = spelled(given, host);
    if (name == given || parts_of(given).second.find('_') == std::string::npos) continue;
    word.replace(2, given.size(), name);
    notes.push_back("--" + given + " is --" + name + " since version 0.1.0; the old spelling ends with the next version");
  }
}

namespace {

/// Throws if parts have that option, whose names elsewhere are bare: --beta1, --warmup.
void refuse_bare_name(const std::string& option, const std::string& there_is_none, PluginHost& host) {
  for (const char* kind : {"optimizer", "schedule"}) {
    const std::string name = option == "schedule-counting" ? "counting" : option;
    std::string owned;
    for (const std::string& owner : host.names(kind)) {
      for (const OptionSpec& spec : host.option_table(kind, owner)) {
        if (name == spec.name) owned += (owned.empty() ? "--" : ", --") + owner + "." + spec.name;
      }
    }
    if (!owned.empty()) throw UsageError(there_is_none + "; " + kind + "s have one: " + owned);
  }
}

}  // namespace

void refuse_unknown(const std::string& option, const std::string& where, PluginHost& host) {
  const std::string dashes = where.empty() ? "--" : "";
  const auto [owner, name] = parts_of(option);
  if (name.empty()) {
    const std::string there_is_none = where + "there is no option '" + dashes + option + "'";
    refuse_bare_name(option, there_is_none, host);
    std::vector<KnownName> known;
    for (const RunOption& row : run_option_table()) known.push_back({row.spec.name});
    throw UsageError(there_is_none + " (see --help)." + did_you_mean(option, known));
  }
  const auto is_owner = [&, &owner = owner](const PluginFile& file) { return is_owner_of(owner, file); };
  const bool there = std::any_of(host.files().begin(), host.files().end(),
                                 [&](const PluginFile& f) { return is_owner(f) && f.problem.empty(); });
  if (!there) {
    for (const PluginFile& file : host.files()) {
      if (is_owner(file))
        throw UsageError(where + dashes + option + " is given, but " + file.path.string() + " cannot be used: " + file.problem);
    }
    std::vector<KnownName> known;
    for (const PluginFile& file : host.files()) {
      if (file.problem.empty()) known.push_back({file.name, file.summary});
    }
    throw UsageError(where + dashes + option + " is given, but there is no plugin '" + owner + "'." + did_you_mean(owner, known) +
                     " " + host.looked_in());
  }
  std::string message = where + "plugin '" + owner + "' has no option '" + name + "'. It has";
  const std::vector<OptionSpec> table = options_of_plugins(owner, host);
  if (table.empty()) throw UsageError(message + " none");
  std::vector<KnownName> known;
  for (const OptionSpec& spec : table) {
    message += std::string(" ") + spec.name;
    known.push_back({spec.name});
  }
  throw UsageError(message + "." + did_you_mean(name, known));
}

std::map<std::string, std::map<std::string, std::string>> read_plugin_options(std::vector<std::string> tokens, PluginHost& host,
                                                                              std::vector<std::string>& notes) {
  spell_words(tokens, host, notes);
  po::options_description described;
  std::map<std::string, std::vector<OptionSpec>> tables;
  for (const std::string& token : tokens) {
    const std::size_t dot = token.find('.');
    if (!token.starts_with("--") || dot == std::string::npos) continue;
    const std::string owner = token.substr(2, dot - 2);
    if (tables.count(owner) != 0) continue;
    for (const OptionSpec& spec : tables[owner] = options_of_plugins(owner, host)) {
      auto* value = po::value<std::string>();
      if (spec.kind == OptionKind::flag) value->implicit_value("true");
      described.add_options()((owner + "." + spec.name).c_str(), value);
    }
  }
  std::map<std::string, std::map<std::string, std::string>> options;
  try {
    const po::parsed_options parsed = po::command_line_parser(tokens).options(described).style(command_line_style).run();
    for (const po::option& option : parsed.options) {
      if (option.position_key >= 0) {
        throw UsageError("'" + option.value.front() + "' is neither an option nor the value of one (see --help)");
      }
      const auto [owner, name] = parts_of(option.string_key);
      const std::string value = option.value.empty() ? "true" : option.value.front();  // a flag's bare name has no value
      // Checked here already, so that a bad value is an error in commands that do not make this part.
      for (const OptionSpec& spec : tables[owner]) {
        if (name == spec.name) legal_value(spec, value, "--" + option.string_key);
      }
      if (!options[owner].emplace(name, value).second) throw UsageError("--" + option.string_key + " is given twice");
    }
  } catch (const po::unknown_option& error) {
    std::string option = error.get_option_name();
    option.erase(0, option.find_first_not_of('-'));
    refuse_unknown(option, "", host);
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + "; see --help, and `consist plugins NAME` for the options of a part");
  }
  return options;
}

void leave_out_roles(std::vector<ConfigEntry>& entries, const std::function<bool(const std::string&)>& given, PluginHost& host,
                     std::vector<std::string>& notes) {
  LeftOut left_out;
  std::string file;
  std::erase_if(entries, [&](const ConfigEntry& entry) {
    if (!entry.from_results || find_run_option(entry.name) != nullptr) return false;
    const OptionRole role = role_in_file(entry.name, host);
    if (role == OptionRole::setting) return false;
    file = entry.said.substr(0, entry.said.size() - printable(entry.name).size() - std::string_view(": ").size());
    if (!given(entry.name)) left_out.add(role, *spec_of_plugin(entry.name, host), entry.name, entry.value);
    return true;
  });
  left_out.say("--config " + file, notes);
}

void add_entries_of_plugins(const std::vector<ConfigEntry>& entries,
                            std::map<std::string, std::map<std::string, std::string>>& options, PluginHost& host) {
  for (const ConfigEntry& entry : entries) {
    const std::optional<OptionSpec> spec = spec_of_plugin(entry.name, host);
    if (!spec) refuse_unknown(entry.name, entry.said.substr(0, entry.said.size() - entry.name.size()), host);
    if (entry.value.is_array()) throw UsageError(entry.said + " is a list; several values are for consist compare alone");
    const std::string text = option_text(*spec, entry.value, entry);
    legal_value(*spec, text, entry.said);
    options[parts_of(entry.name).first].emplace(spec->name, text);
  }
}

}  // namespace consist
