// A run with another number of ranks than it was asked for, which trains the same.
#pragma once

#include "consist/export.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"

namespace consist {

/// `config`, of config.ranks ranks, for so many `ranks`, which read the same sequences in each step: replicas are left out, and those
/// that are left have more micro-batches of at most config.batch sequences. Throws UsageError where what is left is no whole number
/// of replicas, or where the global batch cannot be divided over them.
CONSIST_API RunConfig with_ranks(RunConfig config, int ranks, PluginHost& host);

}  // namespace consist
