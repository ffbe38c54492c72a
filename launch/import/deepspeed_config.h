// --deepspeed-config FILE: a DeepSpeed JSON as it stands, read into a run's configuration.
#pragma once

#include <set>
#include <string>

#include "launch/import/common/target.h"

namespace consist {

/// The option by which a DeepSpeed JSON was given.
enum class DeepspeedSource {
  deepspeed_config,  ///< --deepspeed-config: the command line must not contradict it
  other_file,        ///< --from, or a file of another trainer that names it: what is given goes before it
};

/// Sets in `config` what the file states: strategy (stage 0 ddp, 1 and 2 zero2, 3 zero3-offload) with its options, precision,
/// batch, clipping, optimizer and learning rate. Adds to config.notes what Target::summarize() says of the keys: what became of
/// each, how "auto" was resolved, or why it has no effect here. Returns the options that the file has stated. Throws UsageError
/// for keys that ask for something that is not done here, that are unknown, or that contradict the command line; SystemError or
/// DataError for a file that cannot be read or is no JSON.
std::set<std::string> apply_deepspeed_config(const std::string& path, const readers::ReaderContext& context, RunConfig& config,
                                             DeepspeedSource source = DeepspeedSource::deepspeed_config);

}  // namespace consist
