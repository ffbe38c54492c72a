#include "launch/tune/estimate.h"

#include <algorithm>
#include <vector>

namespace consist::launch {
namespace {

/// When the compute queue of a rank began the forward part of each micro-batch.
std::vector<double> begins_of(const Program& program, const SimulatedRank& rank, int micro_batches) {
  std::vector<double> begins(static_cast<std::size_t>(micro_batches), -1);
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    if (i.tag.micro_batch < 0 || i.tag.phase != Phase::forward || i.queue != Queue::compute() || !i.op->touches_memory())
      continue;
    double& begin = begins[static_cast<std::size_t>(i.tag.micro_batch)];
    if (begin < 0 || rank.times[n].begin < begin) begin = rank.times[n].begin;
  }
  return begins;
}

/// Seconds of a micro-batch in the middle of the step, by the last stage, which waits for all others.
double seconds_of_one_more(const Program& last_stage, const SimulatedRank& rank, int stages, int micro_batches) {
  const std::vector<double> begins = begins_of(last_stage, rank, micro_batches);
  const auto period = static_cast<std::size_t>(stages);
  return (begins[2 * period] - begins[period]) / static_cast<double>(period);
}

}  // namespace

int fewest_micro_batches(int stages) {
  return 3 * stages;
}

Estimate estimate(Plan& plan, int stages, bool whole) {
  const RunConfig& config = plan.config();
  const int fewest = fewest_micro_batches(stages), asked = config.accumulation;
  Estimate result{.whole = whole || asked < 2 * fewest};
  if (!result.whole) plan.config().accumulation = fewest;
  const std::vector<PlannedRank> ranks = plan.ranks(0, 1, false);
  for (const PlannedRank& rank : ranks) result.bytes = std::max(result.bytes, rank.step->memory().bytes[0]);
  const int more = asked - config.accumulation;
  const auto inputs = static_cast<std::int64_t>(2 + plan.parts().fields.size());
  result.bytes += more * inputs * config.batch * config.sequence * static_cast<std::int64_t>(sizeof(std::int32_t));
  const auto capacity = static_cast<std::int64_t>(plan.target().machine->device.memory_bytes.value);
  result.fits = capacity == 0 || result.bytes <= capacity;
  if (!result.fits) return result;
  const Simulation simulation = simulate(ranks);
  result.seconds = simulation.seconds;
  if (more > 0)
    result.seconds +=
        more * seconds_of_one_more(ranks.back().step->program(), simulation.ranks.back(), stages, config.accumulation);
  return result;
}

}  // namespace consist::launch
