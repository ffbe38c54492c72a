// Calls into plugins: whatever a plugin does in one (throws, crashes, exits, hangs) is reported with its name.
#pragma once

#include <chrono>
#include <string>
#include <type_traits>
#include <utility>

#include "consist/export.h"

namespace consist {

/// A plugin for messages. One per loaded file; never destroyed, since objects and threads of the plugin may outlive everything.
struct PluginIdentity {
  std::string label;  ///< "strategy 'zero2'"
  std::string file;
};

/// The plugin that this thread is in, from construction to destruction; calls nest. Cheap: some ten stores.
class CONSIST_API PluginCall {
 public:
  enum class Limit {
    none,            ///< for what may wait for other ranks or for a whole step
    plugin_timeout,  ///< plugin_timeout()
    long_work,       ///< 24 times as long: what rightly takes long on large input, such as tokenizing a corpus
  };

  /// `function` lives as long as the call. A call that takes longer than its limit, with no other inside it, ends the process
  /// (see plugin_faults.h).
  PluginCall(const PluginIdentity& plugin, const char* function, Limit limit = Limit::none) noexcept;
  ~PluginCall();
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;

  /// The innermost call of this thread; null outside of any. Async-signal-safe.
  static const PluginCall* current() noexcept;

  const PluginIdentity& plugin() const noexcept { return plugin_; }
  const char* function() const noexcept { return function_; }
  Limit limit() const noexcept { return limit_; }

  /// To be called in a catch block: throws what was caught again, as an Error that names the plugin. Errors of consist/error.h
  /// keep their type; what is no exception becomes one.
  [[noreturn]] void rethrow() const;

 private:
  const PluginIdentity& plugin_;
  const char* function_;
  const PluginCall* outer_;
  Limit limit_;
};

/// Time that a plugin may take for one call that has a limit: 300 s, or the seconds in CONSIST_PLUGIN_TIMEOUT. Throws UsageError
/// if that is no number of seconds above 0.
CONSIST_API std::chrono::milliseconds plugin_timeout();

/// Calls `call` as `function` of a plugin.
template <typename Call>
std::invoke_result_t<Call> in_plugin(const PluginIdentity& plugin, const char* function, PluginCall::Limit limit, Call&& call) {
  const PluginCall mark(plugin, function, limit);
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    mark.rethrow();
  }
}
template <typename Call>
std::invoke_result_t<Call> in_plugin(const PluginIdentity& plugin, const char* function, Call&& call) {
  return in_plugin(plugin, function, PluginCall::Limit::plugin_timeout, std::forward<Call>(call));
}

}  // namespace consist
