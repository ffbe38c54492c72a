// The transport `shm`: GPUs of one host without NVLink, by NCCL's peer copies over PCIe or through host memory, and the proof of
// it.
#include <string>

#include "consist/error.h"
#include "consist/plugin.h"
#include "plugins/transports/nccl/gpu_transport.h"

namespace consist {
namespace {

nccl::WithinHost within_of(const std::string& path) {
  if (path == "pcie") return nccl::WithinHost::pcie;
  return path == "memory" ? nccl::WithinHost::memory : nccl::WithinHost::shm;
}

class ShmTransport final : public nccl::GpuTransport {
 public:
  explicit ShmTransport(const Options& options)
      : GpuTransport("Transport shm", {.path = nccl::Path::shm,
                                       .transport = "shm",
                                       .library = options.text("library"),
                                       .within = within_of(options.text("path"))}) {}

  std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group) override {
    try {
      return GpuTransport::connect(job, group);
    } catch (const SystemError& error) {
      // NCCL's words for a /dev/shm that is full or too small.
      const std::string text = error.what();
      if (text.find("shared memory segment") == std::string::npos) throw;
      throw SystemError(
          text +
          "; /dev/shm has too little space: docker run --shm-size=8g, in Kubernetes an emptyDir with medium Memory at "
          "/dev/shm");
    }
  }

 private:
  std::string missing() const override { return {}; }
  std::string wrong_place(bool several_hosts) const override {
    return several_hosts ? "PCIe and host memory connect the GPUs of one host; transports efa, ib and socket connect hosts" : "";
  }
  int preference_of(bool several_hosts) const override { return several_hosts ? 0 : 20; }
  std::string instead() const override {
    return options().within == nccl::WithinHost::pcie ? "--shm.path=auto takes host memory where there are no peer copies"
                                                      : "--transport socket goes through the network's stack";
  }
};

std::string why_not() {
  return nccl::unavailable("");
}

}  // namespace
}  // namespace consist

CONSIST_PLUGIN(
    transport, consist::Transport, consist::ShmTransport, "shm", "0.1.0",
    "GPUs of a host without NVLink, through NCCL: peer copies over PCIe or host memory; NVLink or a network is an error");
CONSIST_PLUGIN_OPTIONS(
    {"path", consist::OptionKind::choice, "auto",
     "auto: peer copies over PCIe where NCCL takes them, else host memory; beside NVLinks, host memory. pcie and memory insist",
     "auto|pcie|memory"},
    {"library", consist::OptionKind::text, "",
     "file or folder of libnccl.so.2; empty: NCCL_ROOT, the loader's path, the active Python environment", "", "", "",
     consist::OptionRole::code});
CONSIST_PLUGIN_AVAILABILITY(consist::why_not);
