// Options that were given and change nothing.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/plugin/host.h"

namespace consist {

/// By plugin, then by option.
using PluginOptions = std::map<std::string, std::map<std::string, std::string>>;

/// A line for each option that was given and has no effect beside the others: which, and what it would need. `given` knows the
/// options of the run that were given, `config` is what they became with the files that they name, `given_to_plugins` the
/// plugins' options among them.
std::vector<std::string> options_without_effect(const std::function<bool(const std::string&)>& given, const RunConfig& config,
                                                const PluginOptions& given_to_plugins, PluginHost& host);

}  // namespace consist
