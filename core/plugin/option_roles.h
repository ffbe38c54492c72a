// Options that the file of a run cannot give.
#pragma once

#include <string>

#include "consist/export.h"
#include "core/plugin/host.h"

namespace consist {

/// The role of an option: "archive" of a run, "csv.file" of a plugin; setting for one that neither has. Where plugins
/// of several kinds share a name, the first role that is not setting.
CONSIST_API OptionRole role_of(const std::string& option, PluginHost& host);

/// The same for the file of a run, in which all options of observers are results: --observe is not taken over, and without it
/// they would be options of a part that is not there.
CONSIST_API OptionRole role_in_file(const std::string& option, PluginHost& host);

}  // namespace consist
