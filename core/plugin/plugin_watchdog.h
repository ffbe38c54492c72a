// Ends the process when a call into a plugin does not return: see PluginCall::Limit.
#pragma once

#include "core/plugin/plugin_call.h"

namespace consist {

/// Begins to watch a call of this thread, which may take as long as `limit` says (not `none`); a thread of the process's own waits
/// for it. False if no such thread can be started.
bool watch(const PluginCall& call, PluginCall::Limit limit) noexcept;
void unwatch(const PluginCall& call) noexcept;

}  // namespace consist
