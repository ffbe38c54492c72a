// Megatron-LM's arguments.
#pragma once

#include "launch/import/common/target.h"

namespace consist::megatron {

/// Sets in target.config what arguments (megatron_script.h) state; those that are absent have Megatron-LM's defaults. One note for
/// every argument. Throws UsageError for those that ask for what is not done here or are unknown.
void apply(readers::Json arguments, readers::Target& target);

}  // namespace consist::megatron
