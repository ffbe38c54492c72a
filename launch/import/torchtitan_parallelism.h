// Degrees of parallelism and batches of a torchtitan TOML.
#pragma once

#include "launch/import/common/stored_values.h"

namespace consist::torchtitan {

/// Sets strategies with their options, ranks where the degrees state them, and batches. `old`: the layout before [parallelism].
/// Throws UsageError for what is not done here.
void read_parallelism(const readers::StoredValues& values, bool old, readers::Target& target);

}  // namespace consist::torchtitan
