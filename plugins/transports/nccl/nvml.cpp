#include "plugins/transports/nccl/nvml.h"

#include <dlfcn.h>

namespace consist::nccl {
namespace {

// From NVML's reference: NVML_NVLINK_MAX_LINKS, NVML_P2P_CAPS_INDEX_NVLINK and NVML_P2P_STATUS_OK.
constexpr unsigned max_links = 36;
constexpr unsigned capability_nvlink = 2;
constexpr unsigned status_ok = 0;

template <typename Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

}  // namespace

const Nvml& Nvml::instance() {
  static const Nvml nvml;
  return nvml;
}

Nvml::Nvml() {
  void* const handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return;
  int (*init)() = nullptr;
  const bool complete = find(handle, "nvmlInit_v2", init) && find(handle, "nvmlDeviceGetHandleByPciBusId_v2", get_device_) &&
                        find(handle, "nvmlDeviceGetNvLinkState", link_state_) &&
                        find(handle, "nvmlDeviceGetP2PStatus", peer_status_);
  if (!complete || init() != 0) get_device_ = nullptr;
}

void* Nvml::device(const std::string& gpu) const {
  void* device = nullptr;
  if (get_device_ == nullptr || get_device_(gpu.c_str(), &device) != 0) return nullptr;
  return device;
}

std::optional<int> Nvml::active_links(const std::string& gpu) const {
  void* const own = device(gpu);
  if (own == nullptr) return {};
  int count = 0;
  bool answered = false;
  for (unsigned link = 0; link < max_links; ++link) {
    unsigned active = 0;
    if (link_state_(own, link, &active) != 0) continue;  // no such link
    answered = true;
    if (active == 1) ++count;
  }
  if (!answered) return {};
  return count;
}

std::optional<bool> Nvml::linked(const std::string& gpu, const std::string& other) const {
  void* const one = device(gpu);
  void* const two = device(other);
  unsigned status = 0;
  if (one == nullptr || two == nullptr || peer_status_(one, two, capability_nvlink, &status) != 0) return {};
  return status == status_ok;
}

}  // namespace consist::nccl
