// Parts that execute and communicate, as the host hands them out; see guarded.h.
#include <string>

#include "consist/error.h"
#include "core/plugin/guarded.h"
#include "core/plugin/guarded_part.h"
#include "core/plugin/kernel_sets.h"
#include "core/plugin/signal_guard.h"

namespace consist {
namespace {

class GuardedExecutable final : public Guarded<Executable> {
 public:
  using Guarded::Guarded;
  void run() override { call_waiting<&Part::run>("run"); }
  void wait() override { call_waiting<&Part::wait>("wait"); }
  std::int32_t position() const noexcept override { return part_->position(); }
  std::vector<LaunchTime> launch_times() const override { return call<&Part::launch_times>("launch_times"); }
};

class GuardedDevice final : public Guarded<Device> {
 public:
  using Guarded::Guarded;
  void open(int local_rank, int local_ranks) override {
    const SignalGuard signals(plugin_);
    call<&Part::open>("open", local_rank, local_ranks);
  }
  DeviceInfo info() const override { return call<&Part::info>("info"); }
  void* allocate(MemorySpace space, std::int64_t bytes) override {
    void* memory = call<&Part::allocate>("allocate", space, bytes);
    if (memory == nullptr && bytes > 0) refuse<SystemError>("returned null from allocate() of " + std::to_string(bytes) + " bytes");
    return memory;
  }
  void release(MemorySpace space, void* memory) noexcept override {
    const PluginCall call(plugin_, "release");
    part_->release(space, memory);
  }
  void upload(void* device_memory, const void* host, std::int64_t bytes) override {
    call_waiting<&Part::upload>("upload", device_memory, host, bytes);
  }
  void download(void* host, const void* device_memory, std::int64_t bytes) override {
    call_waiting<&Part::download>("download", host, device_memory, bytes);
  }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    auto made = call<&Part::make_kernel>("make_kernel", request);
    return made != nullptr ? std::move(made) : kernel_sets().make(request);
  }
  std::unique_ptr<Executable> prepare(std::vector<Launch> launches, bool profile) override {
    auto made = call<&Part::prepare>("prepare", std::move(launches), profile);
    return std::make_unique<GuardedExecutable>(not_null(std::move(made), "prepare"), plugin_, part_);
  }
  std::map<std::string, std::string> choose_options(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) override {
    return call<&Part::choose_options>("choose_options", dtype, m, n, k);
  }
  DeviceCounters counters() const override { return call<&Part::counters>("counters"); }
  std::vector<DeviceReading> readings() override { return call<&Part::readings>("readings"); }
  double measure_matmul(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) override {
    return call<&Part::measure_matmul>("measure_matmul", dtype, m, n, k);
  }
};

class GuardedKernel final : public Guarded<Kernel> {
 public:
  using Guarded::Guarded;
  std::int64_t workspace_bytes() const override {
    const std::int64_t bytes = call<&Part::workspace_bytes>("workspace_bytes");
    if (bytes >= 0) return bytes;
    refuse("asks for " + std::to_string(bytes) + " bytes of workspace (workspace_bytes()); it must be 0 or more");
  }
  void launch(std::span<const Buffer> inputs, std::span<const Buffer> outputs, void* workspace, NativeQueue queue) override {
    call<&Part::launch>("launch", inputs, outputs, workspace, queue);
  }
  void check() override { call<&Part::check>("check"); }
};

class GuardedKernelSet final : public Guarded<KernelSet> {
 public:
  using Guarded::Guarded;
  std::vector<KernelKey> keys() const override {
    auto keys = call<&Part::keys>("keys");
    if (keys.empty()) refuse("has kernels for nothing: keys() is empty");
    return keys;
  }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    auto made = call<&Part::make_kernel>("make_kernel", request);
    if (made == nullptr) return nullptr;
    return std::make_unique<GuardedKernel>(std::move(made), plugin_, part_);
  }
  std::vector<KernelExample> examples() const override { return call<&Part::examples>("examples"); }
};

/// A communicator's own waits end with Job::timeout(), and name the rank.
class GuardedCommunicator final : public Guarded<Communicator> {
 public:
  using Guarded::Guarded;
  int rank() const noexcept override { return part_->rank(); }
  int size() const noexcept override { return part_->size(); }
  void all_reduce(void* data, std::int64_t count, DType dtype, NativeQueue queue) override {
    call_waiting<&Part::all_reduce>("all_reduce", data, count, dtype, queue);
  }
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override {
    call_waiting<&Part::reduce_scatter>("reduce_scatter", input, output, count, dtype, queue);
  }
  void all_gather(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override {
    call_waiting<&Part::all_gather>("all_gather", input, output, count, dtype, queue);
  }
  void all_to_all(const void* input, std::int64_t input_stride, void* output, std::int64_t output_stride, std::int64_t count,
                  DType dtype, NativeQueue queue) override {
    call_waiting<&Part::all_to_all>("all_to_all", input, input_stride, output, output_stride, count, dtype, queue);
  }
  void broadcast(void* data, std::int64_t count, DType dtype, int root, NativeQueue queue) override {
    call_waiting<&Part::broadcast>("broadcast", data, count, dtype, root, queue);
  }
  void send(const void* data, std::int64_t count, DType dtype, int to, NativeQueue queue) override {
    call_waiting<&Part::send>("send", data, count, dtype, to, queue);
  }
  void receive(void* data, std::int64_t count, DType dtype, int from, NativeQueue queue) override {
    call_waiting<&Part::receive>("receive", data, count, dtype, from, queue);
  }
  void group_begin(NativeQueue queue) override { call_waiting<&Part::group_begin>("group_begin", queue); }
  void group_end(NativeQueue queue) override { call_waiting<&Part::group_end>("group_end", queue); }
  void check() override { call_waiting<&Part::check>("check"); }
  std::string verified_path() const override { return call<&Part::verified_path>("verified_path"); }
  std::int64_t bytes_sent() const noexcept override { return part_->bytes_sent(); }
  std::map<std::string, std::string> versions() const override { return call<&Part::versions>("versions"); }
};

class GuardedTransport final : public Guarded<Transport> {
 public:
  using Guarded::Guarded;
  std::string unavailable(std::string_view device_kind) const override { return call<&Part::unavailable>("unavailable", device_kind); }
  std::string cannot_connect(std::string_view device_kind, bool several_hosts) const override {
    return call<&Part::cannot_connect>("cannot_connect", device_kind, several_hosts);
  }
  int preference(std::string_view device_kind, bool several_hosts) const override {
    return call<&Part::preference>("preference", device_kind, several_hosts);
  }
  std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group) override {
    const SignalGuard signals(plugin_);
    auto made = not_null(call_waiting<&Part::connect>("connect", job, group), "connect");
    if (made->rank() != group.index || made->size() != static_cast<int>(group.ranks.size())) {
      refuse("made a communicator of member " + std::to_string(made->rank()) + " of " + std::to_string(made->size()) +
             " where member " + std::to_string(group.index) + " of " + std::to_string(group.ranks.size()) + " was asked for");
    }
    return std::make_unique<GuardedCommunicator>(std::move(made), plugin_, part_);
  }
};

}  // namespace

std::shared_ptr<Transport> guarded(std::shared_ptr<Transport> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedTransport>(std::move(part), plugin);
}
std::shared_ptr<KernelSet> guarded(std::shared_ptr<KernelSet> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedKernelSet>(std::move(part), plugin);
}
std::shared_ptr<Device> guarded(std::shared_ptr<Device> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedDevice>(std::move(part), plugin);
}

}  // namespace consist
