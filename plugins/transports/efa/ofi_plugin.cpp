#include "plugins/transports/efa/ofi_plugin.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "consist/error.h"

namespace consist::efa {
namespace {

namespace fs = std::filesystem;
constexpr const char* file_names[] = {"libnccl-net-ofi.so", "libnccl-net.so"};
/// Versions of NCCL's interface for networks; plugins export a record for each that they have.
constexpr int newest_interface = 16;
constexpr int oldest_interface = 4;

std::vector<std::string> candidates(const std::string& wanted) {
  std::vector<std::string> places;
  std::error_code error;
  const auto add_folder = [&](const fs::path& folder) {
    for (const char* name : file_names) {
      if (fs::exists(folder / name, error)) places.push_back((folder / name).string());
    }
  };
  if (!wanted.empty()) {
    if (!fs::is_directory(wanted, error)) return {wanted};
    add_folder(wanted);
    if (places.empty()) throw UnavailableError(wanted + " holds neither libnccl-net-ofi.so nor libnccl-net.so");
    return places;
  }
  if (const char* const own = std::getenv("NCCL_NET_PLUGIN"); own != nullptr && *own != '\0') {
    places.emplace_back(own);
    // NCCL itself makes this file name out of a name that is no file's.
    if (places.back().find('/') == std::string::npos) places.push_back("libnccl-net-" + places.back() + ".so");
    return places;
  }
  for (const char* name : file_names) places.emplace_back(name);
  for (const char* folder :
       {"/opt/amazon/ofi-nccl/lib", "/opt/amazon/ofi-nccl/lib64", "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
        "/opt/aws-ofi-nccl/lib", "/opt/aws-ofi-nccl/install/lib"}) {
    add_folder(folder);
  }
  return places;
}

/// The name in the plugin's record. Of all versions of the record the name is the first field.
std::string network_name(void* handle) {
  for (int version = newest_interface; version >= oldest_interface; --version) {
    const void* const record = dlsym(handle, ("ncclNetPlugin_v" + std::to_string(version)).c_str());
    if (record == nullptr) continue;
    const char* const name = *static_cast<const char* const*>(record);
    return name == nullptr ? "" : name;
  }
  return {};
}

bool is_ofi(const std::string& network) {
  return network == "Libfabric" || network == "AWS Libfabric" || network == "OFI";
}

}  // namespace

OfiPlugin find_ofi_plugin(const std::string& wanted) {
  std::string tried;
  const auto note = [&](const std::string& text) { tried += (tried.empty() ? "" : "; ") + text; };
  for (const std::string& place : candidates(wanted)) {
    void* const handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
      const char* const reason = dlerror();
      note(reason == nullptr ? place : reason);
      continue;
    }
    OfiPlugin plugin{place, network_name(handle)};
    if (link_map* map = nullptr; dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name != nullptr) plugin.path = map->l_name;
    if (is_ofi(plugin.network)) return plugin;
    note(plugin.path +
         (plugin.network.empty() ? " is no network plugin of NCCL" : " is NCCL's network '" + plugin.network + "'"));
  }
  throw UnavailableError("the AWS OFI plugin cannot be loaded (" + tried +
                         "); install it, or name its file or folder with --efa.plugin");
}

}  // namespace consist::efa
