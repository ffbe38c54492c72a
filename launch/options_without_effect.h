// Options that were given and change nothing.
#pragma once

#include <boost/program_options.hpp>
#include <map>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/plugin/host.h"

namespace consist {

/// By plugin, then by option.
using PluginOptions = std::map<std::string, std::map<std::string, std::string>>;

/// A line for each option of the command line that has no effect beside the others: which, and what it would need. `config` is
/// what the
/// command line became with the files that it names, `given_to_plugins` the plugins' options on the command line itself.
std::vector<std::string> options_without_effect(const boost::program_options::variables_map& given, const RunConfig& config,
                                                const PluginOptions& given_to_plugins, PluginHost& host);

}  // namespace consist
