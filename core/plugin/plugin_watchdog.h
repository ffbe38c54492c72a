// Ends the process when a call into a plugin does not return: see PluginCall::Limit.
#pragma once

#include "core/plugin/plugin_call.h"

namespace consist {

/// Begins to watch a call of this thread; a thread of the process's own waits for it. False if no such thread can be started.
bool watch(const PluginCall& call) noexcept;
void unwatch(const PluginCall& call) noexcept;

}  // namespace consist
