#include "plugins/transports/nccl/gpu_transport.h"

#include <utility>

#include "consist/error.h"

namespace consist::nccl {

GpuTransport::GpuTransport(std::string what, ConnectOptions options) : what_(std::move(what)), options_(std::move(options)) {}

std::string GpuTransport::not_for(std::string_view device_kind) const {
  if (device_kind == "cuda") return {};
  return what_ + " connects GPUs, and a '" + std::string(device_kind) + "' device is none; transport socket serves it";
}

std::string GpuTransport::unavailable(std::string_view device_kind) const {
  if (std::string reason = not_for(device_kind); !reason.empty()) return reason;
  std::string reason = nccl::unavailable(options_.library);
  return reason.empty() ? missing() : reason;
}

std::string GpuTransport::cannot_connect(std::string_view device_kind, bool several_hosts) const {
  std::string reason = not_for(device_kind);
  return reason.empty() ? wrong_place(several_hosts) : reason;
}

int GpuTransport::preference(std::string_view device_kind, bool several_hosts) const {
  return device_kind == "cuda" ? preference_of(several_hosts) : 0;
}

std::unique_ptr<Communicator> GpuTransport::connect(Job& job, const GroupRequest& group) {
  if (const std::string reason = unavailable(group.device_kind); !reason.empty())
    throw UnavailableError("transport " + options_.transport + ": " + reason);
  try {
    return nccl::connect(job, group, options_);
  } catch (const UnavailableError& error) {  // it may have been chosen by `auto`
    throw UnavailableError(std::string(error.what()) + "; " + instead());
  }
}

WithinHost within_host_from(const std::string& text) {
  if (text == "auto") return WithinHost::automatic;
  return text == "nvlink" ? WithinHost::nvlink : text == "shm" ? WithinHost::shm : WithinHost::network;
}

std::string nothing_between_hosts(const std::string& transport, const std::string& network, WithinHost within) {
  if (within == WithinHost::network) return {};
  const bool by_shm = within == WithinHost::shm;
  return "GPUs of one host use " +
         std::string(by_shm                         ? "PCIe or host memory"
                     : within == WithinHost::nvlink ? "NVLink"
                                                    : "NVLink, PCIe or host memory") +
         " among themselves and nothing goes over " + network + "; take transport " +
         (by_shm                         ? "shm"
          : within == WithinHost::nvlink ? "nvlink"
                                         : "nvlink or shm") +
         ", or give --" + transport + ".within-host=" + transport;
}

}  // namespace consist::nccl
