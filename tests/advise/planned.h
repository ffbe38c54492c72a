// Plans of a preset, as advice gets them.
#pragma once

#include <memory>

#include "core/plan/machine_choice.h"
#include "core/plan/plan.h"
#include "core/plugin/host.h"

namespace consist::test {

inline PluginHost& plugin_host() {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return host;
}

/// A plan of qwen3-0.6b with sequences of 1,024 unless `set` changes it.
template <typename Set>
Plan planned(const std::string& machine, Set set) {
  RunConfig config;
  config.model = "qwen3-0.6b";
  config.sequence = 1024;
  config.precision = "bf16";
  set(config);
  return plan_run(config, plugin_host(), {nullptr, std::make_shared<const Machine>(parse_machine(machine)), false});
}

}  // namespace consist::test
