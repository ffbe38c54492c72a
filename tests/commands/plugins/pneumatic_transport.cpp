// A transport from outside of the tree, which takes part in --transport auto by what it says of itself: tubes between nodes for
// GPUs, and on processors within them, where they may be blocked. It connects nothing.
#include <memory>
#include <string>
#include <string_view>

#include "consist/error.h"
#include "consist/plugin.h"
#include "consist/transport.h"

namespace consist {
namespace {

class PneumaticTransport final : public Transport {
 public:
  explicit PneumaticTransport(const Options& options) : blocked_(options.flag("blocked")) {}

  std::string unavailable(std::string_view /*device_kind*/) const override { return blocked_ ? "its tubes are blocked" : ""; }
  int preference(std::string_view device_kind, bool several_hosts) const override {
    return several_hosts == (device_kind == "cuda") ? 25 : 0;
  }
  std::unique_ptr<Communicator> connect(Job& /*job*/, const GroupRequest& /*group*/) override {
    throw UnavailableError("transport pneumatic: there is no air in the tubes");
  }

 private:
  const bool blocked_;
};

}  // namespace
}  // namespace consist

CONSIST_PLUGIN(transport, consist::Transport, consist::PneumaticTransport, "pneumatic", "0.1.0", "tubes, of a test");
CONSIST_PLUGIN_OPTIONS({"blocked", consist::OptionKind::flag, "true", "the tubes"},
                       {"tube_width", consist::OptionKind::integer, "9",
                        "millimetres, in the spelling that `consist check` refuses"});
