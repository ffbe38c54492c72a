// The configuration that an archive describes (--config run.h5), and the one that a checkpoint does.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_state.h"
#include "core/config/config_file.h"

namespace consist {

/// True if a file of that name is read as an archive.
bool is_archive_name(const std::string& path);

/// The entries of /config in the archive `path`, and those of its plugin_options. Values that its device chose by measuring are
/// given to the device, so that the run rounds as that one did. An archive may come from somebody else: options that name code
/// or places of results (OptionRole) are not taken over; those of plugins are left to add_entries_of_plugins(). Nor is its global
/// batch where `given` (names of options on the command line) changes what it follows from. `notes` gets a line for each thing
/// that an archive cannot give: these, what no configuration has, and another host. Throws DataError for a file that is no
/// archive or has no configuration, UsageError for a model folder, a machine or a file of it that is gone.
std::vector<ConfigEntry> config_of_archive(const std::string& path, const std::function<bool(const std::string&)>& given,
                                           std::vector<std::string>& notes);

/// True if the archive is of `consist evaluate`, which has no steps. Throws DataError for a file that is no archive.
bool is_of_evaluation(const std::string& path);

/// The same of the run that wrote a checkpoint, whose state.json is in the folder `path`.
std::vector<ConfigEntry> config_of_checkpoint(const CheckpointState& state, const std::string& path,
                                              const std::function<bool(const std::string&)>& given);

}  // namespace consist
