// torchtitan's TOML: today's layout of such files ([parallelism], [lr_scheduler]) and the one before ([experimental], parallelism in
// [training]).
#pragma once

#include "launch/import/common/target.h"

namespace consist::torchtitan {

/// True if a tree has the tables of such a file.
bool is_config(const readers::Json& root);

/// Sets in target.config what the file states; keys that are absent have torchtitan's defaults. One note for every key. Throws
/// UsageError for keys that ask for what is not done here or are unknown.
void apply(readers::Json root, readers::Target& target);

}  // namespace consist::torchtitan
