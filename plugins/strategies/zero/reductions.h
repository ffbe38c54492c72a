// Reductions of gradients, of which each rank keeps its slice: reduce_scatters in buckets while backward goes on.
#pragma once

#include <span>
#include <string>

#include "consist/edit.h"
#include "plugins/strategies/zero/settings.h"
#include "plugins/strategies/zero/strip.h"

namespace consist::zero {

/// Adds each micro-batch's gradients to those of the one before, unsharded, in place, where the instructions that make them can.
/// Returns the gradients that are left to be reduced.
std::vector<PartialGradient> add_up_whole(Program& step, std::span<const PartialGradient> gradients);

/// Inserts casts of gradients that are sent in another dtype and, after the instruction that completes a bucket's last one, a
/// reduce_scatter. Adds the results over micro-batches and sets Parameter::gradient. Storages are called `bucket` and a number;
/// each is freed, and its results are added, when the next bucket is reduced, so that compute does not wait for the network.
void insert_reductions(Program& step, Inserter& inserter, std::span<PartialGradient> gradients, AxisSet axes,
                       const std::string& bucket, const Settings& settings);

}  // namespace consist::zero
