#include "core/plan/known_strategies.h"

#include "consist/error.h"

namespace consist {

std::vector<KnownStrategy> known_strategies(PluginHost& host) {
  std::vector<KnownStrategy> known;
  for (const std::string& name : host.names("strategy")) {
    try {
      known.push_back({name, host.make<ParallelStrategy>("strategy", name, {})->axis()});
    } catch (const Error&) {
      continue;
    }
  }
  return known;
}

}  // namespace consist
