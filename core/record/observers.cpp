#include "core/record/observers.h"

#include <algorithm>

#include "consist/log.h"
#include "core/plugin/plugin_faults.h"

namespace consist {

Observer::~Observer() = default;
void Observer::begin(const ObservedRun& /*run*/) {}
void Observer::step(const ObservedStep& /*step*/) {}
void Observer::evaluated(const ObservedEvaluation& /*evaluation*/) {}
void Observer::checkpoint(std::int64_t /*step*/, std::string_view /*folder*/) {}
void Observer::sample(std::int64_t /*step*/, std::string_view /*text*/) {}
std::string Observer::reason_to_end() const {
  return {};
}
void Observer::result(std::string_view /*json*/) {}
void Observer::end(std::string_view /*status*/, std::string_view /*reason*/) {}

Observers::Observers(const RunConfig& config, PluginHost& host) {
  for (const std::string& name : config.observers) {
    const auto options = config.plugin_options.find(name);
    add(name,
        host.make<Observer>("observer", name,
                            options == config.plugin_options.end() ? std::map<std::string, std::string>{} : options->second));
  }
}

void Observers::begin(const ObservedRun& run) {
  for (const auto& [name, observer] : all_) observer->begin(run);
}

std::string Observers::reason_to_end() noexcept {
  std::string reason;
  call_each([&](const std::string& name, const Observer& observer) {
    if (!reason.empty()) return;
    if (std::string own = observer.reason_to_end(); !own.empty()) reason = "observer '" + name + "': " + own;
  });
  return reason;
}

void Observers::tell(const std::function<void(Observer&)>& deed) noexcept {
  call_each([&](const std::string& /*name*/, Observer& observer) { deed(observer); });
}

void Observers::call_each(const std::function<void(const std::string&, Observer&)>& deed) noexcept {
  const PluginsAwaited awaited;
  std::erase_if(all_, [&](const auto& named) {
    std::string problem;
    try {
      deed(named.first, *named.second);
      return false;
    } catch (const std::exception& error) {
      problem = error.what();
    } catch (...) {
      problem = "it threw something that is no std::exception";
    }
    log::warn("observer '" + named.first + "' failed and is switched off; the run goes on: " + problem);
    return true;
  });
}

}  // namespace consist
