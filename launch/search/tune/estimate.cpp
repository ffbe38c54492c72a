#include "launch/search/tune/estimate.h"

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

/// Seconds of a micro-batch in the middle of the step, of the stage that takes the longest.
double seconds_of_one_more(const std::vector<PlannedRank>& ranks, const Simulation& simulation, int micro_batches) {
  double most = 0;
  const std::size_t period = ranks.size();
  for (std::size_t s = 0; s < ranks.size(); ++s) {
    const std::vector<double> begins = begins_of(ranks[s].step->program(), simulation.ranks[s], micro_batches);
    most = std::max(most, (begins[begins.size() - 1] - begins[begins.size() - 1 - period]) / static_cast<double>(period));
  }
  return most;
}

/// Seconds of a step: as simulated, and `more` micro-batches like the one in the middle.
double seconds_of_step(const std::vector<PlannedRank>& ranks, const Simulation& simulation, int more, const RunConfig& config) {
  return simulation.seconds + (more > 0 ? more * seconds_of_one_more(ranks, simulation, config.accumulation) : 0);
}

/// Joules of all ranks in a step of `seconds`: as simulated, and `more` micro-batches like the one in the middle.
double joules_of_step(const std::vector<PlannedRank>& ranks, const Simulation& simulation, double seconds, int more,
                      const RunConfig& config, const Power& power) {
  double joules = 0;
  for (std::size_t s = 0; s < ranks.size(); ++s) {
    const Program& program = ranks[s].step->program();
    WorkSeconds work = work_seconds(program, simulation.ranks[s]);
    const WorkSeconds of_one = work_seconds(program, simulation.ranks[s], config.accumulation / 2);
    for (std::size_t kind = 0; kind < work.size(); ++kind) work[kind] += more * of_one[kind];
    joules += joules_of(power, seconds, work);
  }
  return joules * config.ranks / static_cast<double>(ranks.size());
}

}  // namespace

int fewest_micro_batches(int stages) {
  return stages == 1 ? 3 : 4 * stages;  // zero-bubble schedules put off gradients of weights for long
}

Estimate estimate(const Plan& asked, int stages, bool whole, const Power& power) {
  const int fewest = fewest_micro_batches(stages);
  Estimate result{.whole = whole || asked.config().accumulation <= fewest};
  const Plan plan = result.whole ? asked : asked.with_micro_batches(fewest);
  const RunConfig& config = plan.config();
  const std::vector<PlannedRank> ranks = plan.ranks(0, 1, false);
  for (const PlannedRank& rank : ranks) result.bytes = std::max(result.bytes, rank.step->memory().bytes[0]);
  const int more = asked.config().accumulation - config.accumulation;
  const auto inputs = static_cast<std::int64_t>(2 + plan.parts().fields.size());
  result.bytes += more * inputs * config.batch * config.sequence * static_cast<std::int64_t>(sizeof(std::int32_t));
  const auto capacity = static_cast<std::int64_t>(plan.target().machine->device.memory_bytes.value);
  result.fits = capacity == 0 || result.bytes <= capacity;
  if (!result.fits) return result;
  const Simulation simulation = simulate(ranks);
  result.seconds = seconds_of_step(ranks, simulation, more, config);
  if (result.whole) result.prediction = std::make_shared<const Prediction>(predict(plan, ranks, simulation));
  if (power.is_known()) result.joules = joules_of_step(ranks, simulation, result.seconds, more, config, power);
  return result;
}

std::vector<Ratio> ratios_on(const Plan& asked, int stages, std::span<const std::shared_ptr<const Machine>> machines,
                             const Power& power) {
  const Plan plan = asked.config().accumulation <= fewest_micro_batches(stages)
                        ? asked
                        : asked.with_micro_batches(fewest_micro_batches(stages));
  const RunConfig& config = plan.config();
  const int more = asked.config().accumulation - config.accumulation;
  const std::vector<PlannedRank> ranks = plan.ranks(0, 1, false);
  const std::vector<const Program*> programs = programs_of(ranks);
  const auto on = [&](const std::shared_ptr<const Machine>& machine) {
    const CostModel costs(machine, plan.layout().mesh, plan.transports().by_axis);
    std::vector<Durations> durations;
    for (const Program* program : programs) durations.push_back(costs.durations(*program));
    const Simulation simulation = simulate(programs, durations);
    const double seconds = seconds_of_step(ranks, simulation, more, config);
    return Ratio{seconds, power.is_known() ? joules_of_step(ranks, simulation, seconds, more, config, power) : 1};
  };
  const Ratio own = on(plan.target().machine);
  std::vector<Ratio> ratios;
  for (const std::shared_ptr<const Machine>& machine : machines) {
    const Ratio there = on(machine);
    ratios.push_back({there.seconds / own.seconds, there.joules / own.joules});
  }
  return ratios;
}

}  // namespace consist::launch
