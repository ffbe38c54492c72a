// The base of the parts of guarded.h: how a call is handed on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "consist/error.h"
#include "core/plugin/plugin_call.h"

namespace consist {

/// A part of a plugin behind its own interface. Each function hands its call on by call() or call_waiting().
template <typename Interface>
class Guarded : public Interface {
 public:
  /// `maker` made the part and may own what that refers to; null for what the plugin itself made.
  Guarded(std::shared_ptr<Interface> part, const PluginIdentity& plugin, std::shared_ptr<const void> maker = nullptr)
      : plugin_(plugin), maker_(std::move(maker)), part_(std::move(part)) {}

 protected:
  using Part = Interface;

  /// Calls a function of the part; `name` is a literal.
  template <auto function, typename... Arguments>
  decltype(auto) call(const char* name, Arguments&&... arguments) const {
    return marked<function>(PluginCall::Limit::plugin_timeout, name, std::forward<Arguments>(arguments)...);
  }
  /// The same for what may take any time: it waits for other ranks, or for a whole step.
  template <auto function, typename... Arguments>
  decltype(auto) call_waiting(const char* name, Arguments&&... arguments) const {
    return marked<function>(PluginCall::Limit::none, name, std::forward<Arguments>(arguments)...);
  }
  template <auto function, typename... Arguments>
  decltype(auto) marked(PluginCall::Limit limit, const char* name, Arguments&&... arguments) const {
    return in_plugin(plugin_, name, limit,
                     [&]() -> decltype(auto) { return std::invoke(function, *part_, std::forward<Arguments>(arguments)...); });
  }

  /// Throws an E that says what the plugin did.
  template <typename E = Error>
  [[noreturn]] void refuse(const std::string& deed) const {
    throw E(plugin_.label + " (" + plugin_.file + ") " + deed);
  }
  template <typename Made>
  std::unique_ptr<Made> not_null(std::unique_ptr<Made> made, const char* function) const {
    if (made == nullptr) refuse(std::string("returned null from ") + function + "()");
    return made;
  }

  const PluginIdentity& plugin_;
  std::shared_ptr<const void> maker_;
  std::shared_ptr<Interface> part_;
};

}  // namespace consist
