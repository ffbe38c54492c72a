// Checks that the device of this machine is the one that a search is made for.
#pragma once

#include <string>

#include "consist/cost.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"

namespace consist::launch {

/// Why runs here would say nothing of configurations that are searched for `machine`: there is no device, or it is another one.
/// Empty if it is of that machine. Opens the run's device (--device) for a moment.
std::string reason_not_to_measure(const Machine& machine, const RunConfig& config, PluginHost& host);

}  // namespace consist::launch
