// The longest sequence and the largest batch that a machine's memory takes, of all configurations.
#pragma once

#include <cstdint>
#include <functional>

#include "launch/search/tune/search.h"

namespace consist::launch {

/// The largest multiple of `unit` up to `most` that `fits`, which is asked for few: what is larger than one that does not fit
/// does not fit. 0: not even `unit`.
std::int64_t largest_that_fits(std::int64_t unit, std::int64_t most, const std::function<bool(std::int64_t)>& fits);

/// True if any configuration fits, as far as small micro-batches, full recomputation and the options that save the most memory
/// can tell. Throws as search().
bool anything_fits(const SearchRequest& request, PluginHost& host);

/// Sets the sequence to the longest multiple of 1,024 tokens, up to the model's positions, with which anything fits. Throws
/// UsageError if nothing does.
void fit_sequence(SearchRequest& request, PluginHost& host);
/// Sets the global batch to the largest multiple of the ranks that fits in one micro-batch. Throws UsageError if nothing does.
void fit_batch(SearchRequest& request, PluginHost& host);

}  // namespace consist::launch
