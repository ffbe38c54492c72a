// The plugin ABI. A plugin is a shared object with one record of constant bytes (read from the file without loading it) and three
// C functions: create, destroy, and the option table. Two macros make them, outside of any namespace in one source file:
//
//     CONSIST_PLUGIN(strategy, consist::ParallelStrategy, MyStrategy, "my-strategy", "1.0.0", "what it does, in one line")
//     CONSIST_PLUGIN_OPTIONS({"bucket-size", consist::OptionKind::bytes, "25M", "bytes per bucket"})   // or CONSIST_PLUGIN_NO_OPTIONS
//
// MyStrategy derives from the interface and is constructed from `const consist::Options&`. A plugin is loaded at most once, never
// unloaded, and its objects are destroyed before the host's. Exceptions may cross.
#pragma once

#include <cstdint>
#include <string>  // defines _GLIBCXX_USE_CXX11_ABI, which is part of the fingerprint
#include <type_traits>

#include "consist/export.h"
#include "consist/fingerprint.h"  // generated: CONSIST_HEADERS_HASH
#include "consist/options.h"

#define CONSIST_STRINGIZE_(x) #x
#define CONSIST_STRINGIZE(x) CONSIST_STRINGIZE_(x)

/// Public headers, C++ ABI and standard library that a plugin was built against; host and plugin must agree to the letter.
#define CONSIST_FINGERPRINT                                                                              \
  "headers-" CONSIST_HEADERS_HASH "/gxx-abi-" CONSIST_STRINGIZE(__GXX_ABI_VERSION) "/cxx11-" CONSIST_STRINGIZE( \
      _GLIBCXX_USE_CXX11_ABI)

/// Major version of the CUDA toolkit that a plugin was built with, 0 for plugins without CUDA. consist_add_plugin sets it.
#ifndef CONSIST_PLUGIN_CUDA_MAJOR
#define CONSIST_PLUGIN_CUDA_MAJOR 0
#endif

namespace consist {

inline constexpr std::uint32_t plugin_api_version = 1;

/// Found by its magic in the bytes of the file (section ".consist_plugin"). Fixed size, no pointers; strings end in NUL.
struct PluginInfo {
  char magic[16] = {'C', 'O', 'N', 'S', 'I', 'S', 'T', '-', 'P', 'L', 'U', 'G', 'I', 'N', '\n', '\0'};
  std::uint32_t record_bytes = sizeof(PluginInfo);
  std::uint32_t api_version = plugin_api_version;
  char fingerprint[80] = {};
  char kind[16] = {};
  char name[32] = {};
  char version[16] = {};
  char summary[160] = {};
  std::uint32_t cuda_major = 0;  ///< of the toolkit it was built with, 0: none. Plugins of one process exchange streams.
};

class Adapter;
class Dataset;
class Device;
class KernelSet;
class Model;
class Loss;
class Observer;
class Optimizer;
class ParallelStrategy;
class Precision;
class Schedule;
class Transport;

namespace detail {
// The interface of each kind: the loader casts to it by the kind that the record states.
using interface_of_adapter = Adapter;
using interface_of_dataset = Dataset;
using interface_of_device = Device;
using interface_of_kernels = KernelSet;
using interface_of_model = Model;
using interface_of_loss = Loss;
using interface_of_observer = Observer;
using interface_of_optimizer = Optimizer;
using interface_of_precision = Precision;
using interface_of_schedule = Schedule;
using interface_of_strategy = ParallelStrategy;
using interface_of_transport = Transport;

template <std::size_t N, std::size_t M>
constexpr void copy_text(char (&to)[N], const char (&from)[M]) {
  static_assert(M <= N, "a text of CONSIST_PLUGIN is too long for its field");
  for (std::size_t i = 0; i < M; ++i) to[i] = from[i];
}
template <std::size_t F, std::size_t K, std::size_t A, std::size_t V, std::size_t S>
constexpr PluginInfo make_plugin_info(const char (&fingerprint)[F], const char (&kind)[K], const char (&name)[A],
                                      const char (&version)[V], const char (&summary)[S], std::uint32_t cuda_major) {
  PluginInfo info;
  info.cuda_major = cuda_major;
  copy_text(info.fingerprint, fingerprint);
  copy_text(info.kind, kind);
  copy_text(info.name, name);
  copy_text(info.version, version);
  copy_text(info.summary, summary);
  return info;
}
}  // namespace detail

}  // namespace consist

/// kind: adapter, dataset, device, kernels, model, loss, observer, optimizer, precision, schedule, strategy or transport (a
/// bare word);
/// Interface: its class; Type: yours.
#define CONSIST_PLUGIN(kind, Interface, Type, name, version, summary)                                                     \
  static_assert(std::is_same_v<Interface, consist::detail::interface_of_##kind>,                                          \
                "CONSIST_PLUGIN: the interface is not that of the kind (strategy: consist::ParallelStrategy, ...)");      \
  static_assert(std::is_base_of_v<Interface, Type>, "CONSIST_PLUGIN: the type does not derive from the interface");       \
  static_assert(std::is_constructible_v<Type, const consist::Options&>,                                                   \
                "CONSIST_PLUGIN: the type has no constructor that takes const consist::Options&");                        \
  extern "C" {                                                                                                            \
  [[gnu::visibility("default")]] extern const consist::PluginInfo consist_plugin_info;                                    \
  [[gnu::section(".consist_plugin"), gnu::used]] const consist::PluginInfo consist_plugin_info =                          \
      consist::detail::make_plugin_info(CONSIST_FINGERPRINT, #kind, name, version, summary, CONSIST_PLUGIN_CUDA_MAJOR);   \
  CONSIST_API void* consist_plugin_create(const consist::Options& options) {                                              \
    return static_cast<Interface*>(new Type(options));                                                                    \
  }                                                                                                                       \
  CONSIST_API void consist_plugin_destroy(void* object) { delete static_cast<Interface*>(object); }                       \
  }                                                                                                                       \
  static_assert(true)

/// The option table; each argument is one OptionSpec in braces.
#define CONSIST_PLUGIN_OPTIONS(...)                                                                          \
  extern "C" CONSIST_API const consist::OptionSpec* consist_plugin_options(std::size_t* count) {              \
    static constexpr consist::OptionSpec table[] = {__VA_ARGS__};                                             \
    *count = sizeof(table) / sizeof(table[0]);                                                                \
    return table;                                                                                             \
  }                                                                                                           \
  static_assert(true)

#define CONSIST_PLUGIN_NO_OPTIONS()                                                              \
  extern "C" CONSIST_API const consist::OptionSpec* consist_plugin_options(std::size_t* count) { \
    *count = 0;                                                                                  \
    return nullptr;                                                                              \
  }                                                                                              \
  static_assert(true)

/// Optional: `function()` returns the reason why the part cannot work on this machine, as a text; empty if it can. `consist
/// plugins` calls it in a process of its own, so that it may probe hardware.
#define CONSIST_PLUGIN_AVAILABILITY(function)                                             \
  extern "C" CONSIST_API const char* consist_plugin_unavailable() {                       \
    static const std::string reason = (function)();                                       \
    return reason.c_str();                                                                \
  }                                                                                       \
  static_assert(true)
