// CostModel: durations of a whole program, at the clock of a device that its power limits.
#include <cmath>

#include "consist/cost.h"

namespace consist {

std::vector<double> CostModel::durations(const Program& program) const {
  const double slowest = mesh_.ranks() > 1 ? 1 + machine_->rank_skew.value : 1;
  const double lag = machine_->device.throttling.lag.value;
  std::vector<double> seconds;
  std::vector<Timed> computed;
  seconds.reserve(program.instructions.size());
  for (const Instruction& i : program.instructions) {
    if (i.queue == Queue::compute()) {
      computed.push_back(timed(program, i));
      seconds.push_back(computed.back().seconds * slowest);
    } else {
      seconds.push_back(this->seconds(program, i));
    }
  }
  if (lag <= 0) return seconds;
  double load = 0;
  constexpr int steps = 2;  // the load at the start of a step is that at the end of the one before
  for (int step = 0; step < steps; ++step) {
    auto of = computed.begin();
    for (std::size_t n = 0; n < seconds.size(); ++n) {
      if (program.instructions[n].queue != Queue::compute()) continue;
      const Timed& timed = *of++;
      if (timed.seconds <= 0) continue;
      const double unloaded = timed.seconds * slowest / (1 + timed.sensitivity * timed.load);
      const double age = unloaded * (1 + timed.sensitivity * load) / lag;  // of the load before it, at its end
      const double mean = timed.demand - (load - timed.demand) * std::expm1(-age) / age;
      seconds[n] = unloaded * (1 + timed.sensitivity * mean);
      load = timed.demand + (load - timed.demand) * std::exp(-age);
    }
  }
  return seconds;
}

}  // namespace consist
