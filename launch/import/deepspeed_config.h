// --deepspeed-config FILE: a DeepSpeed JSON as it stands, read into a run's configuration.
#pragma once

#include <set>
#include <string>

#include "launch/import/common/target.h"

namespace consist {

/// Sets in `config` what the file states: strategy (stage 0 ddp, 1 and 2 zero2, 3 zero3-offload) with its options, precision,
/// batch, clipping, optimizer and learning rate. Adds to config.notes what Target::summarize() says of the keys: what became of
/// each, how "auto" was resolved, or why it has no effect here. Returns the options that the file has stated. Throws UsageError
/// for keys that ask for something that is not done here, that are unknown, or that contradict the command line; SystemError or
/// DataError for a file that cannot be read or is no JSON.
std::set<std::string> apply_deepspeed_config(const std::string& path, const readers::ReaderContext& context, RunConfig& config);

namespace deepspeed {

/// The same of a JSON that has been read, into target.config.
void apply(readers::Json root, readers::Target& target);

}  // namespace deepspeed

}  // namespace consist
