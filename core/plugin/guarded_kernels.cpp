// Kernel sets as the host hands them out; see guarded.h.
#include "consist/error.h"
#include "core/plugin/guarded.h"

namespace consist {
namespace {

constexpr auto limited = PluginCall::Limit::plugin_timeout;

class GuardedKernel final : public Kernel {
 public:
  GuardedKernel(std::unique_ptr<Kernel> part, std::shared_ptr<KernelSet> set, const PluginIdentity& plugin)
      : set_(std::move(set)), part_(std::move(part)), plugin_(plugin) {}
  std::int64_t workspace_bytes() const override {
    const std::int64_t bytes = in_plugin(plugin_, "workspace_bytes", [&] { return part_->workspace_bytes(); });
    if (bytes >= 0) return bytes;
    throw Error(plugin_.label + " (" + plugin_.file + ") asks for " + std::to_string(bytes) +
                " bytes of workspace (workspace_bytes()); it must be 0 or more");
  }
  void launch(std::span<const Buffer> inputs, std::span<const Buffer> outputs, void* workspace, NativeQueue queue) override {
    in_plugin(plugin_, "launch", [&] { part_->launch(inputs, outputs, workspace, queue); });
  }
  void check() override {
    in_plugin(plugin_, "check", [&] { part_->check(); });
  }

 private:
  std::shared_ptr<KernelSet> set_;
  std::unique_ptr<Kernel> part_;
  const PluginIdentity& plugin_;
};

class GuardedKernelSet final : public KernelSet {
 public:
  GuardedKernelSet(std::shared_ptr<KernelSet> part, const PluginIdentity& plugin) : part_(std::move(part)), plugin_(plugin) {}
  std::vector<KernelKey> keys() const override {
    auto keys = in_plugin(plugin_, "keys", [&] { return part_->keys(); });
    if (keys.empty()) throw Error(plugin_.label + " (" + plugin_.file + ") has kernels for nothing: keys() is empty");
    return keys;
  }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    auto made = in_plugin(plugin_, "make_kernel", limited, [&] { return part_->make_kernel(request); });
    if (made == nullptr) return nullptr;
    return std::make_unique<GuardedKernel>(std::move(made), part_, plugin_);
  }
  std::vector<KernelExample> examples() const override {
    return in_plugin(plugin_, "examples", [&] { return part_->examples(); });
  }

 private:
  std::shared_ptr<KernelSet> part_;
  const PluginIdentity& plugin_;
};

}  // namespace

std::shared_ptr<KernelSet> guarded(std::shared_ptr<KernelSet> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedKernelSet>(std::move(part), plugin);
}

}  // namespace consist
