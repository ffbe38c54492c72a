#include "core/record/observers.h"

#include <algorithm>

#include "consist/log.h"
#include "core/plugin/plugin_faults.h"

namespace consist {

Observer::~Observer() = default;
void Observer::begin(const ObservedRun& /*run*/) {}
void Observer::step(const ObservedStep& /*step*/) {}
void Observer::evaluated(std::int64_t /*step*/, double /*loss*/, std::int64_t /*sequences*/) {}
void Observer::checkpoint(std::int64_t /*step*/, std::string_view /*folder*/) {}
void Observer::sample(std::int64_t /*step*/, std::string_view /*text*/) {}
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

void Observers::tell(const std::function<void(Observer&)>& deed) noexcept {
  const PluginsAwaited awaited;
  std::erase_if(all_, [&](const auto& named) {
    std::string problem;
    try {
      deed(*named.second);
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
