#include "core/plugin/plugin_call.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <typeinfo>

#include "consist/error.h"
#include "core/base/number.h"
#include "core/plugin/plugin_watchdog.h"

namespace consist {
namespace {

// Read by signal handlers, so it must not be allocated on first use: the library is loaded with the program.
thread_local const PluginCall* innermost __attribute__((tls_model("initial-exec"))) = nullptr;

std::string type_name(const std::type_info* type) {
  if (type == nullptr) return "something foreign";
  int status = 0;
  char* name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  const std::string text = name == nullptr ? type->name() : name;
  std::free(name);
  return text;
}

/// `message` with the plugin's label, once.
std::string with_label(const std::string& message, const PluginIdentity& plugin) {
  return message.find(plugin.label) == std::string::npos ? message + " (" + plugin.label + ")" : message;
}

}  // namespace

PluginCall::PluginCall(const PluginIdentity& plugin, const char* function, Limit limit) noexcept
    : plugin_(plugin), function_(function), outer_(innermost), limit_(limit) {
  innermost = this;
  show_innermost(this);
}

PluginCall::~PluginCall() {
  innermost = outer_;
  show_innermost(outer_);
}

const PluginCall* PluginCall::current() noexcept {
  return innermost;
}

void PluginCall::rethrow() const {
  try {
    throw;
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being cancelled
  } catch (const PeerError&) {
    throw;  // names the rank to blame, which is not this plugin's fault
  } catch (const UsageError& error) {
    throw UsageError(with_label(error.what(), plugin_));
  } catch (const DataError& error) {
    throw DataError(with_label(error.what(), plugin_));
  } catch (const SystemError& error) {
    throw SystemError(with_label(error.what(), plugin_));
  } catch (const UnavailableError& error) {
    throw UnavailableError(with_label(error.what(), plugin_));
  } catch (const ProgramError& error) {
    throw ProgramError(with_label(error.what(), plugin_));
  } catch (const Error& error) {
    throw Error(with_label(error.what(), plugin_));
  } catch (const std::bad_alloc&) {
    throw SystemError("there was not enough memory in " + std::string(function_) + "() of " + plugin_.label);
  } catch (const std::exception& error) {
    throw Error(plugin_.label + " (" + plugin_.file + ") threw " + type_name(&typeid(error)) + " in " + function_ +
                "(): " + error.what());
  } catch (...) {
    throw Error(plugin_.label + " (" + plugin_.file + ") threw a value of type " +
                type_name(abi::__cxa_current_exception_type()) + " in " + function_ +
                "(), which is no exception; plugins throw what consist/error.h declares");
  }
}

std::chrono::milliseconds plugin_timeout() {
  constexpr std::chrono::seconds usual{300};
  const char* text = std::getenv("CONSIST_PLUGIN_TIMEOUT");
  if (text == nullptr || *text == '\0') return usual;
  int seconds = 0;
  if (!parse_number(text, seconds) || seconds < 1)
    throw UsageError(std::string("CONSIST_PLUGIN_TIMEOUT is '") + text + "'; it must be a number of seconds from 1 on");
  return std::chrono::seconds(seconds);
}

}  // namespace consist
