#include "launch/cli/run_options.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "consist/error.h"
#include "consist/options.h"
#include "consist/text.h"
#include "core/base/did_you_mean.h"
#include "core/config/dataset_choices.h"
#include "core/config/option_value.h"
#include "core/plan/parts.h"
#include "launch/cli/config_of_archive.h"
#include "launch/cli/file_options.h"
#include "launch/cli/options_without_effect.h"
#include "launch/cli/plugin_options.h"
#include "launch/import/hub_download.h"

namespace consist {

void add_entries(ParsedRun& parsed, std::vector<ConfigEntry> entries) {
  const std::set<std::string> sources{"config", "print-config", "json"};
  std::map<std::string, GivenOption> of_file;
  for (ConfigEntry& entry : entries) {
    const std::span<const RunOption> own = parsed.command->own;
    const auto of_command = std::find_if(own.begin(), own.end(), [&](const RunOption& o) { return entry.name == o.spec.name; });
    const RunOption* option = of_command != own.end() ? &*of_command : find_run_option(entry.name);
    if (option == nullptr) {
      parsed.of_plugins.push_back(std::move(entry));
      continue;
    }
    if (sources.contains(entry.name))
      throw UsageError(entry.said + " belongs on the command line, not into the file that it names");
    GivenOption given{entry.said, {}};
    if (entry.value.is_array()) {
      if (!option->repeats) throw UsageError(entry.said + " is a list; several values are for consist compare alone");
      for (const auto& value : entry.value) given.values.push_back(option_text(option->spec, value, entry));
      if (given.values.empty()) continue;
    } else {
      given.values.push_back(option_text(option->spec, entry.value, entry));
    }
    of_file.emplace(entry.name, std::move(given));
  }
  parsed.given.merge(of_file);  // what is there stays
}

ParsedRun parse_run(CommandLine line) {
  ParsedRun parsed{std::move(line), {}, {}};
  const std::string path = parsed.text("config");
  if (path.empty()) return parsed;
  const auto given = [&](const std::string& name) { return parsed.has(name); };
  add_entries(parsed, is_archive_name(path) ? config_of_archive(path, given, parsed.notes) : read_config_file(path));
  return parsed;
}

ParsedRun parse_run(const std::vector<std::string>& arguments) {
  static constexpr Command run{.name = "train", .takes = Takes::all};
  return parse_run(read_command_line(run, arguments));
}

std::vector<std::string> plugin_paths(const ParsedRun& parsed) {
  return parsed.texts("plugin");
}

namespace {

/// The global batch determines the batch if that is not given, else the accumulation if that is not given.
void leave_batch_open(const ParsedRun& parsed, const std::set<std::string>& stated, RunConfig& config) {
  const auto open = [&](const char* option) {
    return (!parsed.has(option) || is_from_file(parsed, option)) && stated.count(option) == 0;
  };
  if (config.global_batch > 0 && open("batch")) {
    config.batch = 0;
  } else if (config.global_batch > 0 && open("accumulation")) {
    config.accumulation = 0;
  }
}

/// --steps or --epochs: of a file that states the one, the command line may replace it by the other.
void settle_length(const ParsedRun& parsed, RunConfig& config) {
  if (config.epochs == 0 || !parsed.has("steps")) return;
  const bool says_steps = parsed.is_on_command_line("steps"), says_epochs = parsed.is_on_command_line("epochs");
  if (says_steps && !says_epochs) {
    config.epochs = 0;
  } else if (says_steps || !says_epochs) {
    throw UsageError(parsed.given.at("epochs").said + " and " + parsed.given.at("steps").said +
                     " both say how long the run is; give one of them");
  }
}

}  // namespace

namespace {

/// The layers that a file recomputes, where the command line says that none are.
bool is_dropped(const ParsedRun& parsed, const RunOption& option, const RunConfig& config) {
  return option.spec.name == std::string_view("recompute-layers") && !parsed.is_on_command_line("recompute-layers") &&
         parsed.is_on_command_line("recompute") && !config.recompute.any();
}

/// True if the command line itself chooses parts, so that the file of --config may state options of parts that are replaced.
bool chooses_parts(const ParsedRun& parsed) {
  const char* const choices[] = {"strategy",  "transport", "precision", "device", "dataset", "model",
                                 "optimizer", "schedule",  "observe",   "from",   "adapter", "loss"};
  return std::any_of(std::begin(choices), std::end(choices),
                     [&](const char* option) { return parsed.is_on_command_line(option); });
}

}  // namespace

void say_plugin_warnings(const PluginHost& host, const JobAddress& process) {
  if (process.rank != 0 || process.joined_fd >= 0) return;
  for (const std::string& text : host.warnings()) std::fprintf(stderr, "warning: %s\n", printable(text).c_str());
}

RunConfig make_config(const ParsedRun& parsed, PluginHost& host) {
  RunConfig c;
  c.notes = parsed.notes;
  c.plugin_options =
      read_plugin_options(parsed.rest, host, c.notes);  // first: a mistyped option is the better message than what lacks without it
  const PluginOptions of_command_line = c.plugin_options;
  std::vector<ConfigEntry> of_plugins = parsed.of_plugins;
  for (ConfigEntry& entry : of_plugins) entry.name = spelled(entry.name, host);
  const auto is_given_to_plugin = [&](const std::string& option) {
    const std::size_t dot = option.find('.');
    const auto owner = c.plugin_options.find(option.substr(0, dot));
    return owner != c.plugin_options.end() && owner->second.contains(option.substr(dot + 1));
  };
  leave_out_roles(of_plugins, is_given_to_plugin, host, c.notes);
  add_entries_of_plugins(of_plugins, c.plugin_options, host);
  for (const RunOption& option : run_option_table()) {
    const auto given = parsed.given.find(option.spec.name);
    if (given != parsed.given.end() && !is_from_file(parsed, option.spec.name) && !is_dropped(parsed, option, c))
      set_option(c, option, given->second.values.back(), given->second.said);
  }
  settle_length(parsed, c);
  PluginOptions given_to_plugins = c.plugin_options;
  leave_batch_open(parsed, read_trainer_file(parsed, host, c), c);
  if (!parsed.of_plugins.empty() && chooses_parts(parsed)) {
    drop_stray_options("--config " + parsed.text("config"), of_command_line, host, c);
    std::erase_if(given_to_plugins, [&](const auto& of_plugin) { return !c.plugin_options.contains(of_plugin.first); });
  }
  launch::bring_hub_model(c.model, false);
  c.check();
  // Files that --print-config has written, and archives, have all options: that they have defaults needs no word.
  const auto is_given = [&](const std::string& option) {
    const RunOption& row = *find_run_option(option);
    return parsed.is_on_command_line(option) || (parsed.has(option) && text_in(c, row) != text_in(RunConfig(), row));
  };
  for (const std::string& line : options_without_effect(is_given, c, given_to_plugins, host)) c.notes.push_back(line);
  return c;
}

std::string to_toml(const RunConfig& config, PluginHost& host, const std::vector<std::string>& plugins) {
  std::string text;
  const OptionSpec& path = find_run_option("plugin")->spec;
  for (const std::string& plugin : plugins) text += (text.empty() ? "plugin = [" : ", ") + toml_value(path, plugin);
  if (!text.empty()) text += "]\n";
  for (const RunOption& option : run_option_table()) {
    if (option.get == nullptr) continue;
    const std::string value = text_in(config, option), name = option.spec.name;
    const bool open = ((name == "batch" || name == "accumulation") && value == "0") ||  // follows from the global batch
                      (name == "steps" && config.epochs > 0);                           // follows from the data
    if (open || option.is_unset(value)) continue;
    text += toml_key(name) + " = " + toml_value(option.spec, value) + "\n";
  }
  for (const auto& [owner, options] : config.plugin_options) {
    if (options.empty()) continue;
    text += "\n[" + toml_key(owner) + "]\n";
    for (const auto& [name, value] : options) {
      const std::optional<OptionSpec> spec = spec_of_plugin(owner + "." + name, host);
      if (spec) text += toml_key(name) + " = " + toml_value(*spec, legal_value(*spec, value, "--" + owner + "." + name)) + "\n";
    }
  }
  return text;
}

void print_config(const RunConfig& config, PluginHost& host, const std::vector<std::string>& plugins) {
  for (const std::string& note : config.notes) std::fprintf(stderr, "%s\n", printable(note).c_str());
  std::fputs(to_toml(config, host, plugins).c_str(), stdout);
}

int planning_command(const CommandLine& line, const std::function<int(const ParsedRun&, PluginHost&, RunConfig)>& body) {
  const ParsedRun parsed = parse_run(line);
  PluginHost host(plugin_paths(parsed));
  say_plugin_warnings(host);
  RunConfig config = make_config(parsed, host);
  if (!parsed.flag("print-config")) return body(parsed, host, std::move(config));
  print_config(config, host, plugin_paths(parsed));
  return 0;
}

namespace {

/// A list as compare takes it on its command line.
std::string listed(const ConfigEntry& entry, const OptionSpec& spec, Sweep sweep) {
  std::vector<std::string> values;
  if (entry.value.is_array()) {
    for (const auto& value : entry.value) values.push_back(option_text(spec, value, entry));
  } else {
    values.push_back(option_text(spec, entry.value, entry));
  }
  if (values.empty()) throw UsageError(entry.said + " is an empty list");
  if (sweep == Sweep::none && values.size() > 1)
    throw UsageError(entry.said + " is a list; this option has one value in a comparison");
  std::string text;
  for (std::string& value : values) {
    if (sweep == Sweep::pluses) std::replace(value.begin(), value.end(), ',', '+');
    text += (text.empty() ? "" : ",") + (sweep == Sweep::groups && values.size() > 1 ? "[" + value + "]" : value);
  }
  return text;
}

}  // namespace

std::vector<std::string> words_of(const std::vector<ConfigEntry>& entries, const std::vector<std::string>& arguments,
                                  PluginHost& host) {
  std::vector<std::string> words;
  for (const ConfigEntry& entry : entries) {
    const std::string option = "--" + entry.name;
    const bool given = std::any_of(arguments.begin(), arguments.end(),
                                   [&](const std::string& word) { return word == option || word.starts_with(option + "="); });
    if (given) continue;
    const RunOption* of_run = find_run_option(entry.name);
    if (of_run != nullptr && of_run->is_unset(entry.value.is_string() ? entry.value.get<std::string>() : entry.value.dump()))
      continue;
    for (const char* own : {"archive", "overwrite", "config", "print-config", "json"}) {
      if (entry.name == own && entry.value != false && entry.value != "")
        throw UsageError(entry.said + " has no place in the file of a comparison; see consist compare --help");
    }
    const std::optional<OptionSpec> of_plugin = of_run == nullptr ? spec_of_plugin(entry.name, host) : std::nullopt;
    if (of_run == nullptr && !of_plugin)
      refuse_unknown(entry.name, entry.said.substr(0, entry.said.size() - entry.name.size()), host);
    if (of_run != nullptr && of_run->repeats) {
      for (const auto& value : entry.value.is_array() ? entry.value : nlohmann::json::array({entry.value}))
        words.push_back(option + "=" + option_text(of_run->spec, value, entry));
      continue;
    }
    const OptionSpec& spec = of_run != nullptr ? of_run->spec : *of_plugin;
    const Sweep sweep = of_run != nullptr ? of_run->sweep : spec.kind == OptionKind::text ? Sweep::groups : Sweep::commas;
    const std::string value = listed(entry, spec, sweep);
    if (of_run == nullptr || !of_run->is_switch()) {
      words.push_back(option + "=" + value);
    } else if (value == "true") {
      words.push_back(option);
    } else if (value != "false") {
      throw UsageError(entry.said + " is a list; a switch is on or off in all runs of a comparison");
    }
  }
  return words;
}

}  // namespace consist
