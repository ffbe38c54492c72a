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

}  // namespace consist::launch
