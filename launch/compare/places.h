// Where each run of a comparison has its files: runs that shared a folder would find each other's checkpoints there, and replace
// each other's files.
#pragma once

#include <filesystem>
#include <string>

#include "core/config/run_config.h"

namespace consist::launch {

/// The value of --checkpoint, --export or --trace in the run of that label: a folder of its own within the one given, or a file
/// with the label in its name.
std::string place_of(const std::string& option, const std::filesystem::path& given, const std::string& label);

/// The configuration with its places, those that it has, in the run of that label; as it is without a label.
RunConfig config_in_place(RunConfig config, const std::string& label);

}  // namespace consist::launch
