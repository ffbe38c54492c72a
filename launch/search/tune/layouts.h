// Every way to divide ranks between the strategies that there are.
#pragma once

#include <vector>

#include "consist/cost.h"
#include "consist/model.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"
#include "launch/search/tune/space.h"

namespace consist::launch {

/// Without dimensions and transports. Over one strategy within layers (inside of a node), one of stages, one along the sequence,
/// one of experts and one that splits the batch, on one axis or on two; of all plugins that there are.
std::vector<LayoutChoice> layouts_of(const RunConfig& config, const ModelSizes& sizes, const Machine& machine, PluginHost& host);

}  // namespace consist::launch
