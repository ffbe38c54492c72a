#include <string>

#include "consist/error.h"
#include "core/plugin/guarded.h"

namespace consist {
namespace {

/// A communicator's own waits end with Job::timeout(), and name the rank.
constexpr auto unlimited = PluginCall::Limit::none;

class GuardedCommunicator final : public Communicator {
 public:
  GuardedCommunicator(std::unique_ptr<Communicator> part, std::shared_ptr<Transport> transport, const PluginIdentity& plugin)
      : transport_(std::move(transport)), part_(std::move(part)), plugin_(plugin) {}
  int rank() const noexcept override { return part_->rank(); }
  int size() const noexcept override { return part_->size(); }
  void all_reduce(void* data, std::int64_t count, DType dtype, NativeQueue queue) override {
    in_plugin(plugin_, "all_reduce", unlimited, [&] { part_->all_reduce(data, count, dtype, queue); });
  }
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override {
    in_plugin(plugin_, "reduce_scatter", unlimited, [&] { part_->reduce_scatter(input, output, count, dtype, queue); });
  }
  void all_gather(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override {
    in_plugin(plugin_, "all_gather", unlimited, [&] { part_->all_gather(input, output, count, dtype, queue); });
  }
  void all_to_all(const void* input, std::int64_t input_stride, void* output, std::int64_t output_stride, std::int64_t count,
                  DType dtype, NativeQueue queue) override {
    in_plugin(plugin_, "all_to_all", unlimited,
              [&] { part_->all_to_all(input, input_stride, output, output_stride, count, dtype, queue); });
  }
  void broadcast(void* data, std::int64_t count, DType dtype, int root, NativeQueue queue) override {
    in_plugin(plugin_, "broadcast", unlimited, [&] { part_->broadcast(data, count, dtype, root, queue); });
  }
  void send(const void* data, std::int64_t count, DType dtype, int to, NativeQueue queue) override {
    in_plugin(plugin_, "send", unlimited, [&] { part_->send(data, count, dtype, to, queue); });
  }
  void receive(void* data, std::int64_t count, DType dtype, int from, NativeQueue queue) override {
    in_plugin(plugin_, "receive", unlimited, [&] { part_->receive(data, count, dtype, from, queue); });
  }
  void group_begin(NativeQueue queue) override {
    in_plugin(plugin_, "group_begin", unlimited, [&] { part_->group_begin(queue); });
  }
  void group_end(NativeQueue queue) override {
    in_plugin(plugin_, "group_end", unlimited, [&] { part_->group_end(queue); });
  }
  void check() override {
    in_plugin(plugin_, "check", unlimited, [&] { part_->check(); });
  }
  std::string verified_path() const override {
    return in_plugin(plugin_, "verified_path", [&] { return part_->verified_path(); });
  }
  std::int64_t bytes_sent() const noexcept override { return part_->bytes_sent(); }
  std::map<std::string, std::string> versions() const override {
    return in_plugin(plugin_, "versions", [&] { return part_->versions(); });
  }

 private:
  std::shared_ptr<Transport> transport_;  // may own what the communicator works on
  std::unique_ptr<Communicator> part_;
  const PluginIdentity& plugin_;
};

class GuardedTransport final : public Transport {
 public:
  GuardedTransport(std::shared_ptr<Transport> part, const PluginIdentity& plugin) : part_(std::move(part)), plugin_(plugin) {}
  std::string unavailable(std::string_view device_kind) const override {
    return in_plugin(plugin_, "unavailable", PluginCall::Limit::plugin_timeout, [&] { return part_->unavailable(device_kind); });
  }
  std::string cannot_connect(std::string_view device_kind, bool several_hosts) const override {
    return in_plugin(plugin_, "cannot_connect", PluginCall::Limit::plugin_timeout,
                     [&] { return part_->cannot_connect(device_kind, several_hosts); });
  }
  int preference(std::string_view device_kind, bool several_hosts) const override {
    return in_plugin(plugin_, "preference", PluginCall::Limit::plugin_timeout,
                     [&] { return part_->preference(device_kind, several_hosts); });
  }
  std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group) override {
    auto made = in_plugin(plugin_, "connect", unlimited, [&] { return part_->connect(job, group); });
    if (made == nullptr) throw Error(plugin_.label + " (" + plugin_.file + ") returned null from connect()");
    if (made->rank() != group.index || made->size() != static_cast<int>(group.ranks.size())) {
      throw Error(plugin_.label + " (" + plugin_.file + ") made a communicator of member " + std::to_string(made->rank()) +
                  " of " + std::to_string(made->size()) + " where member " + std::to_string(group.index) + " of " +
                  std::to_string(group.ranks.size()) + " was asked for");
    }
    return std::make_unique<GuardedCommunicator>(std::move(made), part_, plugin_);
  }

 private:
  std::shared_ptr<Transport> part_;
  const PluginIdentity& plugin_;
};

}  // namespace

std::shared_ptr<Transport> guarded(std::shared_ptr<Transport> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedTransport>(std::move(part), plugin);
}

}  // namespace consist
