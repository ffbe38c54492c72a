#include "launch/predict/simulated_trace.h"

#include <chrono>

#include "consist/cost.h"
#include "core/record/step_trace.h"

namespace consist::launch {

std::string simulated_events(std::span<const Program* const> stages, const Simulation& simulation) {
  std::string events;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (s > 0) events += ",\n";
    events += trace_events(*stages[s], simulation.ranks[s].times, stages[s]->rank,
                           costs_of(*stages[s]).machine().name + ", simulated", std::chrono::system_clock::time_point());
  }
  return events;
}

}  // namespace consist::launch
