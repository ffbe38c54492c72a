// Steps and the learning rate of Megatron-LM's arguments.
#pragma once

#include "launch/import/common/stored_values.h"

namespace consist::megatron {

/// Sets steps, schedule and peak. Rates are those of megatron/core/optimizer_param_scheduler.py, which counts samples; where these are
/// no whole steps, the nearest step is taken and said. Throws UsageError for a schedule that is not done here.
void read_schedule(const readers::StoredValues& values, readers::Target& target);

}  // namespace consist::megatron
