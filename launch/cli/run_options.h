// The options that train, explain and compare share, and how they and the plugins' options become a RunConfig: from the command
// line, and from the file of --config, which the command line overrides.
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/config/config_file.h"
#include "core/config/option_table.h"
#include "core/config/run_config.h"
#include "core/job/job.h"
#include "core/plugin/host.h"

namespace consist {

/// A value that was given, and how messages name it: "--steps" or "run.toml, line 3: steps".
struct GivenOption {
  std::string said;
  std::vector<std::string> values;  ///< one, unless the option may be repeated; not checked yet
};

/// Options that were given, on the command line and in the file of --config.
struct ParsedRun {
  std::map<std::string, GivenOption> given;  ///< options of the run and of the command, by name
  /// Tokens of the command line that are none of these: `--<plugin>.<option> VALUE`, read by read_plugin_options.
  std::vector<std::string> rest;
  std::vector<ConfigEntry> of_plugins;  ///< the file's entries that are none of these
  std::vector<std::string> notes;       ///< for people: what the file cannot give

  bool has(const std::string& name) const { return given.contains(name); }
  /// True if the command line itself gives the option, and no file.
  bool is_on_command_line(const std::string& name) const { return has(name) && given.at(name).said == "--" + name; }
  /// The given value, the first of several; empty if none was given.
  std::string text(const std::string& name) const { return has(name) ? given.at(name).values.front() : ""; }
  std::vector<std::string> texts(const std::string& name) const {
    return has(name) ? given.at(name).values : std::vector<std::string>{};
  }
  bool flag(const std::string& name) const { return text(name) == "true"; }
};

/// Parses against the table of the run's options and `own` (the command's), and reads the file of --config. Abbreviations are not
/// guessed. Throws UsageError, and as read_config_file() and config_of_archive().
ParsedRun parse_run(const std::vector<std::string>& arguments, std::span<const RunOption> own = {});

/// Adds the options that entries of a file give and the command line does not. Throws UsageError.
void add_entries(ParsedRun& parsed, std::vector<ConfigEntry> entries, std::span<const RunOption> own = {});

/// The option's value, or its default, checked. Throws UsageError.
std::string value_of(const ParsedRun& parsed, const RunOption& option);

/// The paths of --plugin.
std::vector<std::string> plugin_paths(const ParsedRun& parsed);

/// Says on stderr what PluginHost::warnings() says, in one process of a job: in a launcher, or in rank 0 where the launcher is
/// none of Consist's.
void say_plugin_warnings(const PluginHost& host, const JobAddress& process = {});

/// The config, checked, options of parts included. Throws UsageError.
RunConfig make_config(const ParsedRun& parsed, PluginHost& host);

/// A command that plans: parses its options, says the plugins' warnings on stderr, and calls `body` with what make_config()
/// makes. With --help, which is among the `own` ones, or --print-config it prints that instead. Returns the exit status.
int planning_command(const std::vector<std::string>& arguments, std::span<const RunOption> own, const char* help,
                     const std::function<int(const ParsedRun&, PluginHost&, RunConfig)>& body);

/// The configuration as a TOML file that --config reads back as the same. Options of parts are those that are given. `plugins`
/// are the paths of --plugin.
std::string to_toml(const RunConfig& config, PluginHost& host, const std::vector<std::string>& plugins = {});

/// For --print-config: notes to stderr, the file to stdout.
void print_config(const RunConfig& config, PluginHost& host, const std::vector<std::string>& plugins);

/// The entries of a file as words of a command line, for compare: lists become what its options take ("--precision",
/// "fp32,bf16"). Entries whose option `arguments` gives are left out.
std::vector<std::string> words_of(const std::vector<ConfigEntry>& entries, const std::vector<std::string>& arguments,
                                  PluginHost& host);

}  // namespace consist
