// The model that Megatron-LM's arguments describe by its sizes.
#pragma once

#include "launch/import/common/stored_values.h"

namespace consist::megatron {

/// Sets target.config.model unless the command line gives it, and the sequence. Throws UsageError for a model that is not done here.
void read_model(const readers::StoredValues& values, readers::Target& target);

}  // namespace consist::megatron
