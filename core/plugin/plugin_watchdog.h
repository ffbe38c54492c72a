// Ends the process when a call into a plugin does not return: see PluginCall::Limit.
#pragma once

#include "core/plugin/plugin_call.h"

namespace consist {

/// Begins to watch a call of this thread, which may take as long as `limit` says (plugin_timeout or long_work); a thread of the
/// process's own waits for it. False if no such thread can be started.
bool watch(const PluginCall& call, PluginCall::Limit limit) noexcept;
void unwatch(const PluginCall& call) noexcept;

/// Tells the watchdog that this thread's innermost call of limit many_calls is `call` from now on; null: none. The first time in
/// a thread it allocates; later it is three stores.
void show_innermost(const PluginCall* call) noexcept;

}  // namespace consist
