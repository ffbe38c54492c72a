// The transport `nvlink`: NCCL's peer-to-peer between GPUs of one host, and the proof that it goes through NVLink.
#include <string>

#include "consist/error.h"
#include "consist/plugin.h"
#include "plugins/transports/nccl/gpu_transport.h"

namespace consist {
namespace {

nccl::CopyEngines copy_engines_of(const std::string& name) {
  if (name == "auto") return nccl::CopyEngines::automatic;
  return name == "all" ? nccl::CopyEngines::all : name == "none" ? nccl::CopyEngines::none : nccl::CopyEngines::messages;
}

class NvlinkTransport final : public nccl::GpuTransport {
 public:
  explicit NvlinkTransport(const Options& options)
      : GpuTransport("NVLink", {.path = nccl::Path::nvlink,
                                .transport = "nvlink",
                                .library = options.text("library"),
                                .within = nccl::WithinHost::nvlink,
                                .copy_engines = copy_engines_of(options.text("copy-engines")),
                                .staging = options.integer("staging")}) {
    if (options.integer("staging") < 1)
      throw UsageError("--nvlink.staging is " + std::to_string(options.integer("staging")) + "; it must be at least 1");
  }

 private:
  std::string missing() const override { return nccl::missing_nvlink(); }
  std::string wrong_place(bool several_hosts) const override {
    return several_hosts ? "NVLink connects the GPUs of one host; transports efa, ib and socket connect hosts" : "";
  }
  int preference_of(bool several_hosts) const override { return several_hosts ? 0 : 30; }
  std::string instead() const override { return "--transport shm or socket goes without NVLink"; }
};

std::string why_not() {
  return nccl::unavailable("");
}

}  // namespace
}  // namespace consist

CONSIST_PLUGIN(transport, consist::Transport, consist::NvlinkTransport, "nvlink", "0.1.0",
               "NVLink between the GPUs of a host, through NCCL; a path other than NVLink is an error");
CONSIST_PLUGIN_OPTIONS({"library", consist::OptionKind::text, "",
                        "file or folder of libnccl.so.2; empty: NCCL_ROOT, the loader's path, the active Python environment", "",
                        "", "", consist::OptionRole::code},
                       {"copy-engines", consist::OptionKind::choice, "auto",
                        "what of 256 KiB and more copy engines move, which leave the multiprocessors to the device, instead of "
                        "NCCL's kernels: messages of a pipeline; all: also all_gather and reduce_scatter; auto: these from 4 MiB "
                        "for each rank on, or nothing where ranks cannot reach each other's memory",
                        "auto|none|messages|all"},
                       {"staging", consist::OptionKind::bytes, "32Mi",
                        "device memory for each member of a group, through which copy engines move larger tensors in rounds", "",
                        "copy-engines=auto|messages|all"});
CONSIST_PLUGIN_AVAILABILITY(consist::why_not);
