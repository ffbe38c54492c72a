// The options that train, explain and compare share, and how they and the plugins' options become a RunConfig.
#pragma once

#include <boost/program_options.hpp>
#include <map>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/job/job.h"
#include "core/plugin/host.h"

namespace consist {

/// What the command line gave besides the plugins' options.
struct ParsedRun {
  boost::program_options::variables_map values;
  /// Tokens that are no option of Consist itself: `--<plugin>.<option> VALUE`, read by read_plugin_options.
  std::vector<std::string> rest;
};

/// Options in groups: what to train, how long and with what, where results go.
boost::program_options::options_description run_options();

/// Parses against run_options() and `extra` (the subcommand's own). Abbreviations are not guessed. Throws UsageError.
ParsedRun parse_run(const std::vector<std::string>& arguments, const boost::program_options::options_description& extra);

/// Reads `--<plugin>.<option> VALUE` tokens against the option tables of the plugins they name. Throws UsageError for anything
/// else.
std::map<std::string, std::map<std::string, std::string>> read_plugin_options(const std::vector<std::string>& tokens,
                                                                              PluginHost& host);

/// The paths of --plugin.
std::vector<std::string> plugin_paths(const boost::program_options::variables_map& values);

/// Says on stderr what PluginHost::warnings() says, in one process of a job: in a launcher, or in rank 0 where the launcher is
/// none of Consist's.
void say_plugin_warnings(const PluginHost& host, const JobAddress& process = {});

/// The config, checked, options of parts included. Throws UsageError.
RunConfig make_config(const ParsedRun& parsed, PluginHost& host);

}  // namespace consist
