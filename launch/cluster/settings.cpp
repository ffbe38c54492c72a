#include "launch/cluster/settings.h"

#include "consist/error.h"

namespace consist::launch {

Division divide_ranks(const ClusterSettings& settings, int ranks, const char* key) {
  const int a_node = settings.ranks_per_node;
  if (ranks > a_node && ranks % a_node != 0)
    throw UsageError("--ranks " + std::to_string(ranks) + " do not fill nodes of " + std::to_string(a_node) + " ranks (" +
                     settings.file + ": " + key + "); give a multiple of " + std::to_string(a_node) + ", or fewer for one node");
  const int nodes = ranks > a_node ? ranks / a_node : 1;
  return {nodes, ranks / nodes};
}

void check_hosts(const ClusterSettings& settings, const Division& division, int ranks, const char* key) {
  if (division.nodes <= settings.nodes) return;
  throw UsageError("--ranks " + std::to_string(ranks) + " need " + std::to_string(division.nodes) + " hosts of " +
                   std::to_string(settings.ranks_per_node) + " ranks, and " + settings.file + " has " +
                   std::to_string(settings.nodes) + " (" + key + "); give fewer ranks, or more hosts");
}

}  // namespace consist::launch
