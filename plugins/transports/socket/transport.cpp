// The transport `socket`: collectives over TCP. On host memory it is the ring of the core; on CUDA devices NCCL owns the sockets.
#include "consist/transport.h"

#include <memory>
#include <string>
#include <string_view>

#include "consist/error.h"
#include "consist/plugin.h"
#include "plugins/transports/nccl/connect.h"
#include "plugins/transports/socket/connect.h"

namespace consist {
namespace {

class SocketTransport final : public Transport {
 public:
  explicit SocketTransport(const Options& options)
      : options_{options.text("interface"), options.integer("buffer")},
        chunk_bytes_(options.integer("chunk")),
        library_(options.text("library")) {
    if (options_.buffer_bytes < 0) throw UsageError("--socket.buffer must not be negative");
    if (chunk_bytes_ < 4096 || chunk_bytes_ > (std::int64_t{64} << 20)) {
      throw UsageError("--socket.chunk is " + std::to_string(chunk_bytes_) + " bytes; it must be between 4Ki and 64Mi");
    }
  }

  std::string unavailable(std::string_view device_kind) const override {
    if (device_kind == "cpu") return {};
    if (device_kind == "cuda") return nccl::unavailable(library_);
    return "it serves devices of the kinds cpu and cuda, not '" + std::string(device_kind) + "'";
  }

  /// Behind all others: it serves wherever there is a network.
  int preference(std::string_view device_kind, bool /*several_hosts*/) const override {
    return device_kind == "cpu" || device_kind == "cuda" ? 10 : 0;
  }

  std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group) override {
    if (const std::string reason = unavailable(group.device_kind); !reason.empty())
      throw UnavailableError("transport socket: " + reason);
    if (group.device_kind == "cuda") {
      return nccl::connect(job, group,
                           {.path = nccl::Path::socket,
                            .transport = "socket",
                            .library = library_,
                            .within = nccl::WithinHost::network,
                            .interface = interface_name(options_.interface)});
    }
    return make_ring_communicator(connect_members(job, group, options_), static_cast<std::size_t>(chunk_bytes_));
  }

 private:
  const SocketOptions options_;
  const std::int64_t chunk_bytes_;
  const std::string library_;
};

}  // namespace
}  // namespace consist

CONSIST_PLUGIN(transport, consist::Transport, consist::SocketTransport, "socket", "0.1.0",
               "TCP between hosts or within one: ring collectives on host memory, NCCL on GPUs");
CONSIST_PLUGIN_OPTIONS(
    {"interface", consist::OptionKind::text, "", "network interface or local address to use; empty: any that reaches"},
    {"buffer", consist::OptionKind::bytes, "0",
     "bytes of each socket's send and receive buffer, on host memory; 0: the system's sizing"},
    {"chunk", consist::OptionKind::bytes, "64Ki", "bytes per message of a pipelined collective on host memory"},
    {"library", consist::OptionKind::text, "",
     "file or folder of libnccl.so.2, for CUDA devices; empty: NCCL_ROOT, the loader's path, the active Python environment", "",
     "", "", consist::OptionRole::code});
