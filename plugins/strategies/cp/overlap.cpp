#include "plugins/strategies/cp/overlap.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "consist/op.h"
#include "plugins/strategies/cp/messages.h"

namespace consist::context_parallel {
namespace {

bool of_one_part(const Instruction& a, const Instruction& b) {
  return a.tag.layer == b.tag.layer && a.tag.phase == b.tag.phase && a.tag.micro_batch == b.tag.micro_batch;
}

/// Storages and queues that the instructions before a gather read, write and use for collectives.
class Staying {
 public:
  explicit Staying(const Program& program) : program_(program) {}
  void add(const Instruction& i) {
    for (TensorId id : i.inputs) {
      if (id != no_tensor) read_.insert(program_[id].storage);
    }
    for (TensorId id : i.outputs) {
      if (id != no_tensor) written_.insert(program_[id].storage);
    }
    if (i.op->is_collective()) queues_.insert(i.queue);
  }
  /// True if `i`, which stands before all of them, may run behind them.
  bool can_follow(const Instruction& i) const {
    const auto in = [&](const std::set<TensorId>& storages, TensorId id) {
      return id != no_tensor && storages.contains(program_[id].storage);
    };
    // Other ranks, whose programs need not have this gather, count on the order of a queue's calls: a pipeline's receives come in
    // the order in which the stage before sends.
    if (i.op->is_collective() && queues_.contains(i.queue)) return false;
    return std::ranges::none_of(i.inputs, [&](TensorId id) { return in(written_, id); }) &&
           std::ranges::none_of(i.outputs, [&](TensorId id) { return in(written_, id) || in(read_, id); });
  }

 private:
  const Program& program_;
  std::set<TensorId> read_, written_;  // storages
  std::set<Queue> queues_;             // of collectives
};

}  // namespace

void compute_beside_gathers(Program& step, int axis) {
  std::vector<Instruction> made;
  made.reserve(step.instructions.size());
  for (Instruction& gather : step.instructions) {
    made.push_back(std::move(gather));
    if (made.back().op->movement() != Movement::all_gather || !moves_activations(step, made.back(), axis)) continue;
    Staying staying(step);
    staying.add(made.back());
    std::vector<Instruction> behind;  // the last one first
    std::size_t at = made.size() - 1;
    while (at > 0 && of_one_part(made[at - 1], made.back())) {
      --at;
      if (moves_activations(step, made[at], axis)) break;
      if (staying.can_follow(made[at])) {
        behind.push_back(std::move(made[at]));
        made.erase(made.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        staying.add(made[at]);
      }
    }
    made.insert(made.end(), std::make_move_iterator(behind.rbegin()), std::make_move_iterator(behind.rend()));
  }
  step.instructions = std::move(made);
}

}  // namespace consist::context_parallel
