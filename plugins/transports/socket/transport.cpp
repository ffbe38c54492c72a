// The transport `socket`: collectives over TCP. On host memory it is this file's own ring; on CUDA devices NCCL owns the sockets.
#include "consist/transport.h"

#include <memory>
#include <string>
#include <string_view>

#include "consist/error.h"
#include "consist/plugin.h"
#include "core/collectives/ring.h"
#include "plugins/transports/socket/connect.h"

namespace consist {
namespace {

class SocketTransport final : public Transport {
 public:
  explicit SocketTransport(const Options& options)
      : options_{options.text("interface"), options.integer("buffer")}, chunk_bytes_(options.integer("chunk")) {
    if (options_.buffer_bytes < 0) throw UsageError("--socket.buffer must not be negative");
    if (chunk_bytes_ < 4096 || chunk_bytes_ > (std::int64_t{64} << 20)) {
      throw UsageError("--socket.chunk is " + std::to_string(chunk_bytes_) + " bytes; it must be between 4Ki and 64Mi");
    }
  }

  std::string unavailable(std::string_view device_kind) const override {
    if (device_kind == "cpu") return {};
    return "this build of the transport moves host memory only; a '" + std::string(device_kind) +
           "' device needs NCCL's own sockets, which it does not have yet";
  }

  std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group) override {
    if (const std::string reason = unavailable(group.device_kind); !reason.empty())
      throw UnavailableError("transport socket: " + reason);
    return std::make_unique<RingCommunicator>(connect_members(job, group, options_), static_cast<std::size_t>(chunk_bytes_));
  }

 private:
  const SocketOptions options_;
  const std::int64_t chunk_bytes_;
};

}  // namespace
}  // namespace consist

CONSIST_PLUGIN(transport, consist::Transport, consist::SocketTransport, "socket", "0.1.0",
               "TCP between hosts or within one, with ring collectives on host memory");
CONSIST_PLUGIN_OPTIONS({"interface", consist::OptionKind::text, "",
                        "network interface or local address to use; empty: any that reaches"},
                       {"buffer", consist::OptionKind::bytes, "0",
                        "bytes of each socket's send and receive buffer; 0: the system's sizing"},
                       {"chunk", consist::OptionKind::bytes, "64Ki", "bytes per message of a pipelined collective"});
