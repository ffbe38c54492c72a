// The strategies that there are, by the mesh axes that they ask for: what chooses among them knows no names.
#pragma once

#include <string>
#include <vector>

#include "consist/strategy.h"
#include "core/plugin/host.h"

namespace consist {

struct KnownStrategy {
  std::string name;
  AxisRequest axis;  ///< with the defaults of its options

  /// Data parallelism: each rank has sequences of its own, and the strategy takes whatever ranks are left.
  bool is_data_parallel() const noexcept { return axis.splits_batch && axis.takes_rest; }
};

/// Returns them by name. Those that need options or cannot be loaded are left out: whoever names one is told.
CONSIST_API std::vector<KnownStrategy> known_strategies(PluginHost& host);

}  // namespace consist
