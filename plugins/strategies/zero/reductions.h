// How gradients become sums over ranks, each rank keeping its part: reduce_scatters in buckets while backward goes on.
#pragma once

#include <span>
#include <string>

#include "consist/edit.h"
#include "plugins/strategies/zero/settings.h"
#include "plugins/strategies/zero/strip.h"

namespace consist::zero {

/// Adds each micro-batch's gradients to those of the one before, whole, in place, where the instructions that make them can.
/// Returns what is left to be reduced.
std::vector<PartialGradient> add_up_whole(Program& step, std::span<const PartialGradient> gradients);

/// Inserts a cast of gradients that travel in another dtype, a reduce_scatter behind the instruction that completes the last
/// gradient of each bucket, adds the results up over micro-batches, and sets Parameter::gradient. The storage of a bucket is called
/// `bucket` and its number; its memory is given up and its results are added when the next bucket is reduced, so that nobody waits for the network meanwhile.
void insert_reductions(Program& step, Inserter& inserter, std::span<PartialGradient> gradients, AxisSet axes,
                       const std::string& bucket, const Settings& settings);

}  // namespace consist::zero
