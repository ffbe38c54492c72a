#include "plugins/transports/nccl/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "consist/error.h"
#include "plugins/transports/loaded_library.h"

namespace consist::nccl {
namespace {

namespace fs = std::filesystem;
constexpr const char* file_name = "libnccl.so.2";
/// The first with communicators that do not block and can be split.
constexpr int oldest_version = NCCL_VERSION(2, 18, 1);

std::string from_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// <prefix>/lib/python3.*/site-packages/nvidia/nccl/lib, where NVIDIA's Python package puts it.
void add_python_places(const std::string& prefix, std::vector<std::string>& places) {
  if (prefix.empty()) return;
  std::error_code error;
  for (fs::directory_iterator entry(fs::path(prefix) / "lib", error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with("python3")) continue;
    places.push_back((entry->path() / "site-packages/nvidia/nccl/lib" / file_name).string());
  }
}

std::vector<std::string> candidates(const std::string& wanted) {
  if (!wanted.empty()) return {library_file(wanted, file_name)};
  std::error_code error;
  std::vector<std::string> places;
  for (const char* variable : {"NCCL_ROOT", "NCCL_HOME"}) {
    if (const std::string root = from_environment(variable); !root.empty()) {
      places.push_back((fs::path(root) / "lib" / file_name).string());
      places.push_back((fs::path(root) / "lib64" / file_name).string());
    }
  }
  places.emplace_back(file_name);
  add_python_places(from_environment("VIRTUAL_ENV"), places);
  add_python_places(from_environment("CONDA_PREFIX"), places);
  if (const std::string root = from_environment("CUDA_HOME"); !root.empty())
    places.push_back((fs::path(root) / "lib64" / file_name).string());
  places.emplace_back(CONSIST_NCCL_BUILT_WITH);
  std::erase_if(places, [&](const std::string& place) {
    return place.empty() || (place.find('/') != std::string::npos && !fs::exists(place, error));
  });
  return places;
}

template <typename Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr) throw UnavailableError(std::string("NCCL's library has no function ") + name + ": it is too old");
}

Library open(const std::string& wanted) {
  std::string tried;
  void* const handle = open_first(candidates(wanted), tried);
  if (handle == nullptr) {
    throw UnavailableError(
        "NCCL cannot be loaded; install it, or name its file or folder with --<transport>.library or NCCL_ROOT:" + tried);
  }
  Library l;
  find(handle, "ncclGetVersion", l.get_version);
  if (l.get_version(&l.version) != ncclSuccess || l.version < oldest_version) {
    throw UnavailableError("NCCL " + std::to_string(l.version) + " is too old; 2.18.1 or newer is needed");
  }
  find(handle, "ncclGetUniqueId", l.get_unique_id);
  find(handle, "ncclCommInitRankConfig", l.init_rank);
  find(handle, "ncclCommSplit", l.split);
  find(handle, "ncclCommDestroy", l.destroy);
  find(handle, "ncclCommAbort", l.abort);
  find(handle, "ncclCommGetAsyncError", l.async_error);
  find(handle, "ncclGetErrorString", l.error_string);
  find(handle, "ncclGetLastError", l.last_error);
  find(handle, "ncclAllReduce", l.all_reduce);
  find(handle, "ncclReduceScatter", l.reduce_scatter);
  find(handle, "ncclAllGather", l.all_gather);
  find(handle, "ncclBroadcast", l.broadcast);
  find(handle, "ncclSend", l.send);
  find(handle, "ncclRecv", l.receive);
  find(handle, "ncclGroupStart", l.group_start);
  find(handle, "ncclGroupEnd", l.group_end);
  l.path = file_of(l.get_version);
  return l;
}

}  // namespace

std::string Library::version_text() const {
  return std::to_string(version / 10'000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

const Library& load_library(const std::string& wanted) {
  static LoadedLibrary<Library> library("NCCL", open);
  return library.get(wanted);
}

}  // namespace consist::nccl
