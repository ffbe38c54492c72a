#include "plugins/devices/cuda/graph_choice.h"

#include <algorithm>
#include <string>

namespace consist::cuda {
namespace {

/// A graph's branches share a few hardware queues, in which a receive that waits for another rank holds up whatever lies behind
/// it: a collective of another axis (seen with tensor and pipeline parallelism together on H200s), or, where receives are asked
/// for ahead of time, the very message that the other rank waits for. Streams have hardware queues of their own (see
/// CudaDevice::open).
bool may_be_graph(const std::vector<Launch>& launches) {
  return std::none_of(launches.begin(), launches.end(), [](const Launch& launch) {
    return launch.queue.is_communication() && launch.queue.lane() != Lane::collective;
  });
}

/// Graphs are up to 6% slower beside communication on four H200s (docs/decisions/overlap.md): branches overlap less than streams.
bool graph_pays(const std::vector<Launch>& launches, double launch_seconds) {
  double computing = 0;
  bool communicates = false;
  for (const Launch& launch : launches) {
    if (launch.queue == Queue::compute()) computing += launch.seconds;
    communicates = communicates || launch.queue.is_communication();
  }
  return !communicates || computing < static_cast<double>(launches.size()) * launch_seconds;
}

}  // namespace

GraphChoice graph_choice_of(const std::string& text) {
  if (text == "auto") return GraphChoice::automatic;
  return text == "true" ? GraphChoice::always : GraphChoice::never;
}

bool becomes_graph(GraphChoice choice, const std::vector<Launch>& launches, double launch_seconds) {
  if (choice == GraphChoice::never || !may_be_graph(launches)) return false;
  return choice == GraphChoice::always || graph_pays(launches, launch_seconds);
}

}  // namespace consist::cuda
