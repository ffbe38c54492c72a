// The observers of a run (--observe), on rank 0.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "consist/export.h"
#include "consist/observer.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"

namespace consist {

/// One that throws while the run goes on is switched off with a warning that names it.
class CONSIST_API Observers {
 public:
  Observers() = default;
  /// Makes them. Throws UsageError for one that does not exist, and what their constructors throw.
  Observers(const RunConfig& config, PluginHost& host);
  /// Takes in one, for tests.
  void add(std::string name, std::shared_ptr<Observer> observer) { all_.emplace_back(std::move(name), std::move(observer)); }

  /// Calls their begin(). Throws what they throw: the run has not begun and need not.
  void begin(const ObservedRun& run);
  /// Calls `deed` with each.
  void tell(const std::function<void(Observer&)>& deed) noexcept;
  /// Observer::reason_to_end() of the first that has one, behind its name; empty: none has.
  std::string reason_to_end() noexcept;
  bool empty() const noexcept { return all_.empty(); }

 private:
  void call_each(const std::function<void(const std::string& name, Observer&)>& deed) noexcept;

  std::vector<std::pair<std::string, std::shared_ptr<Observer>>> all_;
};

}  // namespace consist
