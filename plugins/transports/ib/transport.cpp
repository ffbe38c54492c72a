// The transport `ib`: InfiniBand or RoCE between GPUs of several hosts, by NCCL's own transport, and the proof of it.
#include <cstdlib>
#include <string>

#include "consist/error.h"
#include "consist/plugin.h"
#include "plugins/transports/ib/requirements.h"
#include "plugins/transports/nccl/gpu_transport.h"

namespace consist {
namespace {

nccl::ConnectOptions connect_options(const Options& options) {
  const std::string gpudirect = options.text("gpudirect");
  return {.path = nccl::Path::ib,
          .transport = "ib",
          .library = options.text("library"),
          .within = nccl::within_host_from(options.text("within-host")),
          .gpudirect = gpudirect == "required",
          .hcas = ib::choose_ports(options.text("devices"), std::getenv("NCCL_IB_HCA")).hcas,
          .gpudirect_off = gpudirect == "off"};
}

class IbTransport final : public nccl::GpuTransport {
 public:
  explicit IbTransport(const Options& options)
      : GpuTransport("Transport ib", connect_options(options)), devices_(options.text("devices")) {}

 private:
  std::string missing() const override { return ib::problem_of_machine(devices_, options().library); }
  std::string wrong_place(bool several_hosts) const override {
    return several_hosts ? "" : nccl::nothing_between_hosts("ib", "InfiniBand", options().within);
  }
  int preference_of(bool several_hosts) const override { return several_hosts ? 15 : 0; }
  std::string instead() const override {
    return options().gpudirect
               ? "--ib.gpudirect=auto takes host memory where NICs do not reach the GPUs' (load nvidia_peermem, or "
                 "NVIDIA's open kernel module, for that they do)"
               : "--transport socket goes by TCP";
  }

  const std::string devices_;
};

std::string why_not() {
  return ib::problem_of_machine("", "");
}

}  // namespace
}  // namespace consist

CONSIST_PLUGIN(transport, consist::Transport, consist::IbTransport, "ib", "0.1.0",
               "InfiniBand or RoCE between the GPUs of several hosts, through NCCL; another network is an error");
CONSIST_PLUGIN_OPTIONS(
    {"devices", consist::OptionKind::text, "",
     "devices, or ports of them, to use (mlx5_0,mlx5_1:1); empty: NCCL_IB_HCA, else all active ports of InfiniBand, else of "
     "RoCE"},
    {"gpudirect", consist::OptionKind::choice, "auto",
     "NICs that read and write the GPUs' memory: auto: where NCCL can, which the path says; required: an error where it cannot",
     "auto|required|off"},
    {"within-host", consist::OptionKind::choice, "auto",
     "how members of one host talk, beside the others: auto: NVLink where the GPUs have it, else shm", "auto|nvlink|shm|ib"},
    {"library", consist::OptionKind::text, "",
     "file or folder of libnccl.so.2; empty: NCCL_ROOT, the loader's path, the active Python environment", "", "", "",
     consist::OptionRole::code});
CONSIST_PLUGIN_AVAILABILITY(consist::why_not);
