// The transport `nvlink`: NCCL's peer-to-peer between GPUs of one host, and the proof that it goes through NVLink.
#include "consist/transport.h"

#include <memory>
#include <string>
#include <string_view>

#include "consist/error.h"
#include "consist/plugin.h"
#include "plugins/transports/nccl/connect.h"

namespace consist {
namespace {

nccl::CopyEngines copy_engines_of(const std::string& name) {
  if (name == "auto") return nccl::CopyEngines::automatic;
  return name == "all" ? nccl::CopyEngines::all : name == "none" ? nccl::CopyEngines::none : nccl::CopyEngines::messages;
}

class NvlinkTransport final : public Transport {
 public:
  explicit NvlinkTransport(const Options& options)
      : library_(options.text("library")),
        copy_engines_(copy_engines_of(options.text("copy-engines"))),
        staging_(options.integer("staging")) {
    if (staging_ < 1) throw UsageError("--nvlink.staging is " + std::to_string(staging_) + "; it must be at least 1");
  }

  std::string unavailable(std::string_view device_kind) const override {
    if (device_kind != "cuda") return not_for(device_kind);
    const std::string reason = nccl::unavailable(library_);
    return reason.empty() ? nccl::missing_nvlink() : reason;
  }

  std::string cannot_connect(std::string_view device_kind, bool several_hosts) const override {
    if (device_kind != "cuda") return not_for(device_kind);
    return several_hosts ? "NVLink connects the GPUs of one host; transports efa and socket connect hosts" : "";
  }

  int preference(std::string_view device_kind, bool several_hosts) const override {
    return device_kind == "cuda" && !several_hosts ? 30 : 0;
  }

  std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group) override {
    if (const std::string reason = unavailable(group.device_kind); !reason.empty())
      throw UnavailableError("transport nvlink: " + reason);
    try {
      return nccl::connect(job, group,
                           {.path = nccl::Path::nvlink,
                            .transport = "nvlink",
                            .library = library_,
                            .copy_engines = copy_engines_,
                            .staging = staging_,
                            .interface = {}});
    } catch (const UnavailableError& error) {  // it may have been chosen by `auto`
      throw UnavailableError(std::string(error.what()) + "; --transport socket goes without NVLink");
    }
  }

 private:
  static std::string not_for(std::string_view device_kind) {
    return "NVLink connects GPUs; a '" + std::string(device_kind) + "' device has none. Transport socket serves it";
  }

  const std::string library_;
  const nccl::CopyEngines copy_engines_;
  const std::int64_t staging_;
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
