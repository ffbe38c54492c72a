// --from FILE: Megatron-LM's arguments, read into a run's configuration.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "launch/import/common/target.h"

namespace consist {

/// Sets in `config` what a script or file of Megatron-LM's arguments states, what the command line gives goes before it; nothing
/// for a file of another kind. Returns the options that it has stated. Throws UsageError for keys that ask for something that is
/// not done here or are unknown, DataError for one that is not what it looks like.
std::optional<std::set<std::string>> apply_megatron_file(const std::string& path, const readers::ReaderContext& context,
                                                         RunConfig& config);

}  // namespace consist
