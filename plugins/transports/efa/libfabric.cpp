#include "plugins/transports/efa/libfabric.h"

#include <dlfcn.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "consist/error.h"
#include "plugins/transports/loaded_library.h"

namespace consist::efa {
namespace {

namespace fs = std::filesystem;
constexpr const char* file_name = "libfabric.so.1";
/// Version of the interface that is requested: the oldest that is needed, so that every libfabric since understands it.
constexpr std::uint32_t interface_version = FI_VERSION(1, 14);

std::vector<std::string> candidates(const std::string& wanted) {
  if (!wanted.empty()) return {library_file(wanted, file_name)};
  std::error_code error;
  std::vector<std::string> places;
  // Before the distribution's, which may be older than the device and know no GPUs.
  for (const char* folder : {"/opt/amazon/efa/lib", "/opt/amazon/efa/lib64"}) {
    if (fs::path place = fs::path(folder) / file_name; fs::exists(place, error)) places.push_back(place.string());
  }
  places.emplace_back(file_name);
  return places;
}

/// By version, because the layout of fi_info belongs to the version of the symbol: this is the one that fits the oldest headers
/// that are built against, whose fields stand in the same places in all newer ones.
template <typename Function>
void find(void* handle, const char* name, const char* version, Function& function) {
  function = reinterpret_cast<Function>(dlvsym(handle, name, version));
  if (function == nullptr) throw UnavailableError(std::string("libfabric has no function ") + name + " of " + version);
}

Libfabric open(const std::string& wanted) {
  std::string tried;
  void* const handle = open_first(candidates(wanted), tried, RTLD_NODELETE);
  if (handle == nullptr) {
    throw UnavailableError(
        "libfabric cannot be loaded; install it (Debian: libfabric1), or name its file or folder with --efa.libfabric:" + tried);
  }
  Libfabric l;
  find(handle, "fi_getinfo", "FABRIC_1.3", l.getinfo);
  find(handle, "fi_freeinfo", "FABRIC_1.3", l.freeinfo);
  find(handle, "fi_dupinfo", "FABRIC_1.3", l.dupinfo);
  find(handle, "fi_fabric", "FABRIC_1.1", l.fabric);
  find(handle, "fi_strerror", "FABRIC_1.0", l.strerror);
  find(handle, "fi_version", "FABRIC_1.0", l.version);
  l.path = file_of(l.getinfo);
  return l;
}

/// libfabric reads these when it is first asked for endpoints.
void set_variables(const std::string& provider) {
  if (provider == "tcp") {
    // Buffers for 2048 small messages take 60 MiB and 0.1 s for each endpoint; a ring has a handful under way.
    setenv("FI_OFI_RXM_MSG_TX_SIZE", "128", 0);
    setenv("FI_OFI_RXM_MSG_RX_SIZE", "128", 0);
    return;
  }
  // Within a host, provider efa would use shared memory: another path.
  constexpr const char* shared_memory = "FI_EFA_ENABLE_SHM_TRANSFER";
  const char* const present = std::getenv(shared_memory);
  if (present == nullptr) {
    setenv(shared_memory, "0", 1);
  } else if (std::string_view(present) != "0") {
    throw UsageError(std::string("transport efa needs ") + shared_memory + "=0, but the environment says '" + present +
                     "': ranks of one host would talk through shared memory; unset it");
  }
}

}  // namespace

std::string Libfabric::version_text() const {
  const std::uint32_t number = version();
  return std::to_string(FI_MAJOR(number)) + "." + std::to_string(FI_MINOR(number));
}

std::string Libfabric::error_text(long error) const {
  return strerror(static_cast<int>(-error));
}

const Libfabric& load_libfabric(const std::string& wanted) {
  static LoadedLibrary<Libfabric> library("libfabric", open);
  return library.get(wanted);
}

Info find_endpoints(const Libfabric& library, const std::string& provider, bool device_memory, std::string& reason) {
  set_variables(provider);
  const Info hints(library.dupinfo(nullptr), FreeInfo{&library});
  if (!hints) throw SystemError("libfabric has no memory for a request");
  hints->caps = FI_TAGGED | FI_DIRECTED_RECV | (device_memory ? FI_HMEM : 0);
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->mr_mode =
      FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | (device_memory ? FI_MR_LOCAL | FI_MR_HMEM : 0);
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  fi_info* found = nullptr;
  const int result = library.getinfo(interface_version, nullptr, nullptr, 0, hints.get(), &found);
  if (result != 0) reason = library.error_text(result);
  return Info(found, FreeInfo{&library});
}

}  // namespace consist::efa
