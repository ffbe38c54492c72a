// Accounts for the compute queue of a rank in a step: the work that it did, and its waits.
#include <algorithm>

#include "consist/op.h"
#include "core/cost/simulator.h"

namespace consist {
namespace {

class Waits {
 public:
  Waits(const Program& program, SimulatedRank& rank, std::vector<double>* exposed)
      : program_(program), rank_(rank), exposed_(exposed) {}

  void run(double end_of_step) {
    double now = 0;
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      const LaunchTime& time = rank_.times[i];
      if (instruction.queue != Queue::compute() || !instruction.op->touches_memory()) continue;
      if (time.begin > now) blame(instruction, now, time.begin);
      rank_.busy += time.seconds();
      now = std::max(now, time.end);
    }
    // Whatever is behind the rank's last work: its own messages first, then those of other ranks.
    double until = now;
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const LaunchTime& time = rank_.times[i];
      if (program_.instructions[i].queue == Queue::compute() || time.end <= until) continue;
      add(i, std::max(until, time.begin), time.end);
      rank_.for_ranks += std::max(0.0, time.begin - until);
      until = time.end;
    }
    rank_.for_ranks += std::max(0.0, end_of_step - until);
  }

 private:
  /// From `from` to `to` compute waited for what `instruction` waits for, which ended last. In measured steps it may have ended
  /// before `to`: the rest is a gap.
  void blame(const Instruction& instruction, double from, double to) {
    const auto last = std::max_element(instruction.waits.begin(), instruction.waits.end(), [&](InstructionId a, InstructionId b) {
      return rank_.times[static_cast<std::size_t>(a)].end < rank_.times[static_cast<std::size_t>(b)].end;
    });
    if (last == instruction.waits.end()) return;
    const auto waited_for = static_cast<std::size_t>(*last);
    const double until = std::clamp(rank_.times[waited_for].end, from, to);
    const double began = std::clamp(rank_.times[waited_for].begin, from, until);
    const bool meets_stages = program_.instructions[waited_for].queue.axes().intersects(program_.stage_axis);
    if (meets_stages) {
      rank_.for_ranks += began - from;
      add(waited_for, began, until);
    } else {
      add(waited_for, from, until);  // what lies before it on its queue is of the same kind
    }
  }

  void add(std::size_t instruction, double from, double to) {
    const Queue queue = program_.instructions[instruction].queue;
    if (queue.is_communication()) {
      rank_.communication[queue.axes()] += to - from;
    } else {
      rank_.for_copies += to - from;
    }
    if (exposed_ != nullptr) (*exposed_)[instruction] += to - from;
  }

  const Program& program_;
  SimulatedRank& rank_;
  std::vector<double>* exposed_;
};

}  // namespace

std::string_view name_of(Work work) noexcept {
  switch (work) {
    case Work::products:
      return "products";
    case Work::attention:
      return "attention";
    case Work::memory_bound:
      return "memory_bound";
    case Work::optimizer:
      return "optimizer";
  }
  return "?";
}

Work work_of(const Program& program, const Instruction& i) {
  if (i.tag.phase == Phase::optimizer) return Work::optimizer;
  if (i.op->cost(program, i).flops <= 0) return Work::memory_bound;
  return i.attributes.has("head_dim") ? Work::attention : Work::products;  // products of heads, or of rows
}

WorkSeconds work_seconds(const Program& program, const SimulatedRank& rank, int micro_batch) {
  WorkSeconds seconds{};
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    if (i.queue != Queue::compute() || !i.op->touches_memory()) continue;
    if (micro_batch >= 0 && i.tag.micro_batch != micro_batch) continue;
    seconds[static_cast<std::size_t>(work_of(program, i))] += rank.times[n].seconds();
  }
  return seconds;
}

void account(const Program& program, double end_of_step, SimulatedRank& rank, std::vector<double>* exposed) {
  if (exposed != nullptr) exposed->assign(program.instructions.size(), 0.0);
  Waits(program, rank, exposed).run(end_of_step);
}

}  // namespace consist
