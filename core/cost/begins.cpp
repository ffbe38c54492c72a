#include "consist/begins.h"

#include <algorithm>

#include "consist/cost.h"

namespace consist {
namespace {

std::vector<double> compute_seconds(const Program& program) {
  const CostModel& costs = costs_of(program);
  std::vector<double> seconds;
  seconds.reserve(program.instructions.size());
  for (const Instruction& i : program.instructions) seconds.push_back(costs.compute_seconds(program, i));
  return seconds;
}

}  // namespace

Begins::Begins(const Program& program) : Begins(program, compute_seconds(program)) {}

Begins::Begins(const Program& program, std::span<const double> seconds) : begins_{0} {
  begins_.reserve(seconds.size() + 1);
  for (std::size_t i = 0; i < seconds.size(); ++i)
    begins_.push_back(begins_.back() + (program.instructions[i].queue == Queue::compute() ? seconds[i] : 0));
}

InstructionId Begins::first_from(double seconds) const {
  return static_cast<InstructionId>(std::lower_bound(begins_.begin(), begins_.end() - 1, seconds) - begins_.begin());
}

InstructionId Begins::last_until(double seconds, InstructionId before) const {
  const auto behind = std::upper_bound(begins_.begin(), begins_.begin() + before, seconds) - begins_.begin();
  return std::max(InstructionId{0}, static_cast<InstructionId>(behind) - 1);
}

}  // namespace consist
