// Observers as the host hands them out; see guarded.h.
#include "core/plugin/guarded.h"

namespace consist {
namespace {

constexpr auto limited = PluginCall::Limit::plugin_timeout;

class GuardedObserver final : public Observer {
 public:
  GuardedObserver(std::shared_ptr<Observer> part, const PluginIdentity& plugin) : part_(std::move(part)), plugin_(plugin) {}
  void begin(const ObservedRun& run) override {
    in_plugin(plugin_, "begin", limited, [&] { part_->begin(run); });
  }
  void step(const ObservedStep& step) override {
    in_plugin(plugin_, "step", limited, [&] { part_->step(step); });
  }
  void evaluated(std::int64_t step, double loss, std::int64_t sequences) override {
    in_plugin(plugin_, "evaluated", limited, [&] { part_->evaluated(step, loss, sequences); });
  }
  void checkpoint(std::int64_t step, std::string_view folder) override {
    in_plugin(plugin_, "checkpoint", limited, [&] { part_->checkpoint(step, folder); });
  }
  void end(std::string_view status, std::string_view reason) override {
    in_plugin(plugin_, "end", limited, [&] { part_->end(status, reason); });
  }

 private:
  std::shared_ptr<Observer> part_;
  const PluginIdentity& plugin_;
};

}  // namespace

std::shared_ptr<Observer> guarded(std::shared_ptr<Observer> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedObserver>(std::move(part), plugin);
}

}  // namespace consist
