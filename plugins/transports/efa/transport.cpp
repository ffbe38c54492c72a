// The transport `efa`: Amazon's Elastic Fabric Adapter. On host memory it is the ring of the core over libfabric's tagged
// messages; on CUDA devices NCCL through the AWS OFI plugin.
#include "consist/transport.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "consist/error.h"
#include "consist/plugin.h"
#include "plugins/transports/efa/connect.h"
#include "plugins/transports/efa/ofi_plugin.h"
#include "plugins/transports/efa/requirements.h"
#include "plugins/transports/nccl/connect.h"
#include "plugins/transports/nccl/gpu_transport.h"

namespace consist {
namespace {

class EfaTransport final : public Transport {
 public:
  explicit EfaTransport(const Options& options)
      : options_{{options.text("provider"), options.text("device"), options.text("libfabric")},
                 options.flag("gpudirect"),
                 options.text("library"),
                 options.text("plugin")},
        chunk_bytes_(options.integer("chunk")),
        within_host_(nccl::within_host_from(options.text("within-host"))) {
    if (chunk_bytes_ < 4096 || chunk_bytes_ > (std::int64_t{64} << 20)) {
      throw UsageError("--efa.chunk is " + std::to_string(chunk_bytes_) + " bytes; it must be between 4Ki and 64Mi");
    }
  }

  std::string unavailable(std::string_view device_kind) const override {
    if (device_kind == "cpu") return efa::problem_on_host(options_.host);
    if (device_kind == "cuda") return efa::problem_on_cuda(options_);
    return "it serves devices of the kinds cpu and cuda, not '" + std::string(device_kind) + "'";
  }

  std::string cannot_connect(std::string_view device_kind, bool several_hosts) const override {
    return device_kind != "cuda" || several_hosts ? "" : nccl::nothing_between_hosts("efa", "EFA", within_host_);
  }

  int preference(std::string_view device_kind, bool several_hosts) const override {
    return device_kind == "cuda" && several_hosts ? 20 : 0;
  }

  std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group) override {
    if (const std::string reason = unavailable(group.device_kind); !reason.empty())
      throw UnavailableError("transport efa: " + reason);
    if (group.device_kind == "cuda") return connect_gpus(job, group);
    return make_ring_communicator(efa::connect_members(job, group, options_.host),
                                              static_cast<std::size_t>(chunk_bytes_));
  }

 private:
  std::unique_ptr<Communicator> connect_gpus(Job& job, const GroupRequest& group) const {
    efa::OfiPlugin plugin = efa::find_ofi_plugin(options_.ofi_plugin);
    return nccl::connect(job, group,
                         {.path = nccl::Path::efa,
                          .transport = "efa",
                          .library = options_.nccl,
                          .within = within_host_,
                          .interface = {},
                          .gpudirect = options_.gpudirect,
                          .network = std::move(plugin.network),
                          .network_plugin = std::move(plugin.path)});
  }

  const efa::EfaOptions options_;
  const std::int64_t chunk_bytes_;
  const nccl::WithinHost within_host_;
};

}  // namespace
}  // namespace consist

CONSIST_PLUGIN(
    transport, consist::Transport, consist::EfaTransport, "efa", "0.1.0",
    "Amazon's Elastic Fabric Adapter: ring collectives over libfabric on host memory, NCCL with the AWS OFI plugin on GPUs");
CONSIST_PLUGIN_OPTIONS(
    {"provider", consist::OptionKind::choice, "efa",
     "libfabric's provider, on host memory; tcp runs the same code without the hardware", "efa|tcp"},
    {"device", consist::OptionKind::text, "",
     "on host memory: device of libfabric (rdmap0s6-rdm; of tcp: eth0); empty: the ranks of a host share out what there is"},
    {"chunk", consist::OptionKind::bytes, "256Ki", "bytes per message of a pipelined collective on host memory"},
    {"libfabric", consist::OptionKind::text, "",
     "file or folder of libfabric.so.1; empty: where Amazon's installer puts it, the loader's path", "", "", "",
     consist::OptionRole::code},
    {"gpudirect", consist::OptionKind::flag, "true", "on GPUs: insist on NICs that read and write the GPUs' memory"},
    {"within-host", consist::OptionKind::choice, "auto",
     "on GPUs: how members of one host talk, beside the others: auto: NVLink where the GPUs have it, else shm",
     "auto|nvlink|shm|efa"},
    {"plugin", consist::OptionKind::text, "",
     "on GPUs: file or folder of the AWS OFI plugin; empty: NCCL_NET_PLUGIN, the loader's path, where Amazon's installer puts "
     "it",
     "", "", "", consist::OptionRole::code},
    {"library", consist::OptionKind::text, "",
     "file or folder of libnccl.so.2, for CUDA devices; empty: NCCL_ROOT, the loader's path, the active Python environment", "",
     "", "", consist::OptionRole::code});
CONSIST_PLUGIN_AVAILABILITY(consist::efa::problem_of_machine);
