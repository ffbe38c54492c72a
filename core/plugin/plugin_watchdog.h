// Ends the process when a call into a plugin does not return: see PluginCall::Limit.
#pragma once

#include "core/plugin/plugin_call.h"

namespace consist {

/// Tells the watchdog, a thread of the process's own, that `call` is this thread's innermost from now on; null: none. The first
/// time in a thread it may allocate; later it is a few stores.
void show_innermost(const PluginCall* call) noexcept;

}  // namespace consist
