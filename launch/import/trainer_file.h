// --from FILE: the set-up that a file of another trainer states, read into a run's configuration.
#pragma once

#include <set>
#include <string>

#include "launch/import/common/target.h"

namespace consist {

/// Recognises by its content a torchtitan TOML, Megatron-LM's arguments (a script that starts it, a file of arguments, YAML), an
/// Accelerate YAML or a DeepSpeed JSON, and sets in `config` what it states; what the command line gives goes before it. Adds to
/// config.notes what Target::summarize() says of the keys: what became of each, or why it has no effect here. Returns the options
/// that the file has stated. Throws UsageError for keys that ask for something that is not done here or are unknown, and for a
/// file of no such kind; SystemError or DataError for one that cannot be read, is larger than 1 MiB, or is not what it looks
/// like.
std::set<std::string> apply_trainer_file(const std::string& path, const readers::ReaderContext& context, RunConfig& config);

}  // namespace consist
