// The options that train, explain and compare share, and how they and the plugins' options become a RunConfig: from the command
// line, and from the file of --config, which the command line overrides.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config/config_file.h"
#include "core/config/option_table.h"
#include "core/config/run_config.h"
#include "core/job/job.h"
#include "core/plugin/host.h"
#include "launch/cli/command_line.h"

namespace consist {

/// Options that were given, on the command line and in the file of --config.
struct ParsedRun : CommandLine {
  std::vector<ConfigEntry> of_plugins;  ///< the file's entries that are none of a run and none of the command
  std::vector<std::string> notes;       ///< for people: what the file cannot give
};

/// Reads the file of --config, which the command line overrides. Throws UsageError, and as read_config_file() and
/// config_of_archive().
ParsedRun parse_run(CommandLine line);
/// The same of words behind `consist train`.
ParsedRun parse_run(const std::vector<std::string>& arguments);

/// Adds the options that entries of a file give and the command line does not. Throws UsageError.
void add_entries(ParsedRun& parsed, std::vector<ConfigEntry> entries);

/// The paths of --plugin.
std::vector<std::string> plugin_paths(const ParsedRun& parsed);

/// Says on stderr what PluginHost::warnings() says, in one process of a job: in a launcher, or in rank 0 where the launcher is
/// none of Consist's.
void say_plugin_warnings(const PluginHost& host, const JobAddress& process = {});

/// The config, checked, options of parts included. Throws UsageError.
RunConfig make_config(const ParsedRun& parsed, PluginHost& host);

/// A command that plans: says the plugins' warnings on stderr, and calls `body` with what make_config() makes. With
/// --print-config it prints that instead. Returns the exit status.
int planning_command(const CommandLine& line, const std::function<int(const ParsedRun&, PluginHost&, RunConfig)>& body);

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
