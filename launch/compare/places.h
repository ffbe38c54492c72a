// Places of each run's files in a comparison: runs that shared a folder would find each other's checkpoints there, and replace
// each other's files.
#pragma once

#include <filesystem>
#include <string>

#include "core/config/run_config.h"
#include "core/plugin/host.h"

namespace consist::launch {

/// True if the option's value is a place that each run needs for itself: "trace", "csv.file".
bool is_place(const std::string& option, PluginHost& host);

/// The value of such an option in the run of that label: a folder of its own within the one given, or a file with the label in
/// its name. `option` has its dashes.
std::string place_of(const std::string& option, const std::filesystem::path& given, const std::string& label);

/// The configuration with its places, those that it has, in the run of that label; as it is without a label.
RunConfig config_in_place(RunConfig config, const std::string& label, PluginHost& host);

}  // namespace consist::launch
