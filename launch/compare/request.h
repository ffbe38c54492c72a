// The request of consist compare: its own options, those of train with their lists, and the file of --config.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/config/config_file.h"
#include "core/plugin/host.h"
#include "launch/cli/command_line.h"
#include "launch/cluster/cluster.h"

namespace consist::launch {

struct CompareRequest {
  std::vector<std::string> train;  ///< the arguments of train, lists unexpanded
  std::string config;              ///< a file with more of them
  std::string output;
  bool has_output = false;
  bool overwrite = false;  ///< runs that are done are done again
  bool predict = false;    ///< rows are simulated, and nothing is run or written
  int repeats = 0;         ///< 0: by the time that runs take
  std::vector<std::string> add;
  std::vector<std::string> plugins;      ///< the paths of --plugin
  std::vector<std::string> command;      ///< the words as they were given, for the report
  std::string report;                    ///< an HTML page of the comparison; empty: none
  std::shared_ptr<const Cluster> cluster;  ///< rows are jobs of it; none: they run here
  bool dry_run = false;                  ///< jobs are printed
  std::set<std::string> owners_of_file;  ///< parts whose options the file of --config alone states
};

/// Reads the command's own options. Those of train are taken as they stand. Throws UsageError.
CompareRequest read_compare_request(const CommandLine& line);

/// The entries of --config; those of an archive are said to be. Throws as read_config_file() and config_of_archive().
std::vector<ConfigEntry> entries_of(const CompareRequest& request);

/// Gives rows on a cluster the ranks of its file where nothing else states --ranks.
void settle_ranks(CompareRequest& request);

/// Parts that have options in the entries of a file and none on the command line.
std::set<std::string> owners_of(const std::vector<ConfigEntry>& entries, const CompareRequest& request);

/// Spells options of plugins as their plugins do, in entries and on the command line, of which it says so on stderr.
void spell_options(std::vector<ConfigEntry>& entries, CompareRequest& request, PluginHost& host);

/// Takes out of an archive's entries the options of plugins that only the user may give, and says so on stderr.
void leave_out_roles(std::vector<ConfigEntry>& entries, const CompareRequest& request, PluginHost& host);

/// The folders and files of --plugin, without parsing the rest; those of the file where the command line has none.
std::vector<std::string> plugin_paths_of(const CompareRequest& request, const std::vector<ConfigEntry>& entries);

}  // namespace consist::launch
