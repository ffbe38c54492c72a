// The end of the process by a plugin's fault: crash, exit() or hang. The message names the plugin, and the status is not 0.
#pragma once

#include <cfenv>
#include <chrono>
#include <functional>
#include <string>

#include "consist/export.h"
#include "core/plugin/plugin_call.h"

namespace consist {

/// Called once, first thing in main(): from here on a crash names the plugin and the call that it was in, and exit() in the midst
/// of a command is a failure.
CONSIST_API void report_plugin_faults();

/// The command ends by itself: an exit() is in order from here on.
CONSIST_API void command_finished() noexcept;

/// Sets what a run does when a plugin ends the process: tell the other ranks, close the archive. Called from any thread, while
/// others go on. One at a time; an empty function takes it back.
CONSIST_API void on_plugin_fault(std::function<void(const std::string& message)> action);

/// The run has used the libraries that it uses: an exit() by a plugin is dealt with before they free what threads compute with.
CONSIST_API void libraries_are_in_use();

/// Reports that a call has not returned for `taken` and ends the process with status 1. `stopping`: because of
/// plugins_must_hurry(). Called by the watchdog.
[[noreturn]] void end_after_hang(const PluginIdentity& plugin, const char* function, std::chrono::nanoseconds taken,
                                 bool stopping);

/// The user has asked the run to end: from now on a call with a limit that takes 5 s or more while PluginsAwaited lives ends the
/// process.
CONSIST_API void plugins_must_hurry() noexcept;

/// While it lives the run can do nothing but wait for a plugin.
class CONSIST_API PluginsAwaited {
 public:
  PluginsAwaited() noexcept;
  ~PluginsAwaited();
  PluginsAwaited(const PluginsAwaited&) = delete;
  PluginsAwaited& operator=(const PluginsAwaited&) = delete;
};

/// Treats subnormal numbers as the process did before, if a plugin has changed that for this thread (code linked with -Ofast or
/// -ffast-math does as it is loaded), and warns. Made before the plugin's code runs.
class CONSIST_API FloatModeGuard {
 public:
  explicit FloatModeGuard(const PluginIdentity& plugin) noexcept;
  ~FloatModeGuard();
  FloatModeGuard(const FloatModeGuard&) = delete;
  FloatModeGuard& operator=(const FloatModeGuard&) = delete;

 private:
  const PluginIdentity& plugin_;
  std::fenv_t before_;
};

}  // namespace consist
