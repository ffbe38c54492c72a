// Signals' handlers that libraries put in the place of the program's, as libinfinipath does, which RDMA libraries load: on SIGINT
// it writes a backtrace and calls exit(), so that a run ended without a checkpoint and the other ranks waited.
#pragma once

#include <csignal>
#include <vector>

#include "consist/export.h"
#include "core/plugin/plugin_call.h"

namespace consist {

/// Tells libraries that are known to do so, by their environment variables, to leave handlers alone. First thing in main().
CONSIST_API void keep_backtraces_off() noexcept;

/// Puts the handlers that were there when it was made back in their place, with a warning that names the plugin. Made before the
/// plugin's code runs.
class CONSIST_API SignalGuard {
 public:
  explicit SignalGuard(const PluginIdentity& plugin);
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  const PluginIdentity& plugin_;
  std::vector<struct sigaction> before_;
};

}  // namespace consist
