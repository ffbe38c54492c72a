// Libraries that transports load at run time, so that they are built and listed on machines without them.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "consist/error.h"

namespace consist {

/// `wanted`, or the library `file_name` in it if it is a folder.
inline std::string library_file(const std::string& wanted, const char* file_name) {
  std::error_code error;
  return std::filesystem::is_directory(wanted, error) ? (std::filesystem::path(wanted) / file_name).string() : wanted;
}

/// The first of `places` that the loader takes, with its symbols hidden from others; null if it takes none, and then `tried` has
/// a line for each that says why.
inline void* open_first(const std::vector<std::string>& places, std::string& tried, int more_flags = 0) {
  for (const std::string& place : places) {
    void* const handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | more_flags);
    if (handle != nullptr) return handle;
    const char* const reason = dlerror();
    tried += "\n  " + (reason == nullptr ? place : std::string(reason));
  }
  return nullptr;
}

/// The file that a function was loaded from, as the loader resolved it; empty if it cannot tell.
template <typename Function>
std::string file_of(Function* function) {
  Dl_info where{};
  return dladdr(reinterpret_cast<void*>(function), &where) != 0 && where.dli_fname != nullptr ? where.dli_fname : "";
}

/// The process's one copy of a library, kept until the process ends. `Library` has its functions, and a member `path`.
template <typename Library>
class LoadedLibrary {
 public:
  /// `open` loads it from what is wanted (empty: where it usually is), or throws. `name` is for messages.
  LoadedLibrary(const char* name, Library (*open)(const std::string& wanted)) : name_(name), open_(open) {}

  /// Loads it on the first call that succeeds. Thread-safe. Throws what `open` throws, and UsageError when `wanted` is given and
  /// differs from what it was loaded for.
  const Library& get(const std::string& wanted) {
    const std::lock_guard lock(mutex_);
    if (!loaded_) {
      loaded_ = open_(wanted);
      loaded_for_ = wanted;
    } else if (!wanted.empty() && wanted != loaded_for_) {
      throw UsageError(std::string(name_) + " is asked for from " + wanted + ", but this process has loaded " + loaded_->path +
                       " already; name the same library everywhere");
    }
    return *loaded_;
  }

 private:
  const char* name_;
  Library (*open_)(const std::string&);
  std::mutex mutex_;
  std::optional<Library> loaded_;
  std::string loaded_for_;
};

}  // namespace consist
