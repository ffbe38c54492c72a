#include "plugins/strategies/common/weight_gradients.h"

#include <algorithm>
#include <deque>
#include <unordered_set>
#include <vector>

#include "consist/op.h"

namespace consist::strategies {
namespace {

class Delay {
 public:
  Delay(Program& step, int axis) : step_(step), axis_(axis), travelling_(step.tensors.size(), false) {}

  void run() {
    std::vector<Instruction> old = std::move(step_.instructions);
    step_.instructions.clear();
    step_.instructions.reserve(old.size());
    const std::vector<Ahead> ahead = look_ahead(old);
    for (std::size_t i = 0; i < old.size(); ++i) {
      Instruction& instruction = old[i];
      if (is_collective(instruction)) {
        for (TensorId output : instruction.outputs) travelling_[index(output)] = true;
      } else if (waits_for_collective(instruction)) {
        // In forward they would keep activations of the micro-batch before alive.
        emit(instruction.tag.phase == Phase::forward ? pending_.size() : share_of(ahead[i]));
      }
      if (instruction.op->makes_weight_gradients() ||
          (!pending_.empty() && can_follow(instruction) && needs_pending(instruction))) {
        delay(std::move(instruction));
        continue;
      }
      if (needs_pending(instruction) || overwrites_what_pending_reads(instruction)) emit(pending_.size());
      step_.instructions.push_back(std::move(instruction));
    }
    emit(pending_.size());
  }

 private:
  static constexpr double most_shares_pending = 4;  // as many collectives as a layer has

  static std::size_t index(TensorId id) { return static_cast<std::size_t>(id); }
  /// Collectives of other axes, and those that carry the gradients of weights, may come as late as these do.
  bool can_follow(const Instruction& i) const { return i.op->is_collective() && !is_collective(i); }
  /// True for a collective of activations along `axis_`, which others wait for.
  bool is_collective(const Instruction& i) const {
    return i.op->is_collective() && i.queue.axes() == axis_ &&
           (i.inputs.empty() || step_[i.inputs[0]].role != Role::gradient);
  }

  /// True if `i` is the first to read a collective's output.
  bool waits_for_collective(const Instruction& i) {
    bool waits = false;
    for (TensorId input : i.inputs) {
      if (input == no_tensor || !travelling_[index(input)]) continue;
      travelling_[index(input)] = false;
      waits = true;
    }
    return waits;
  }

  /// Work that is still to come at an instruction, up to the next forward part: collectives that are waited for (its own among
  /// them), and FLOPs of weights' gradients.
  struct Ahead {
    int waits = 0;
    double flops = 0;
  };

  std::vector<Ahead> look_ahead(const std::vector<Instruction>& instructions) {
    std::vector<bool> waits(instructions.size(), false);
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      if (is_collective(instructions[i])) {
        for (TensorId output : instructions[i].outputs) travelling_[index(output)] = true;
      } else {
        waits[i] = waits_for_collective(instructions[i]);
      }
    }
    std::vector<Ahead> result(instructions.size());
    Ahead ahead;
    for (std::size_t i = instructions.size(); i-- > 0;) {
      const Instruction& instruction = instructions[i];
      if (waits[i] && instruction.tag.phase == Phase::forward) ahead = {};
      // A weight's gradient may wait itself: what was pending before it hides that collective.
      if (waits[i] && instruction.tag.phase != Phase::forward) ++ahead.waits;
      if (instruction.op->makes_weight_gradients()) ahead.flops += instruction.op->cost(step_, instruction).flops;
      result[i] = ahead;
    }
    return result;
  }

  void delay(Instruction instruction) {
    note(instruction);
    flops_.push_back(instruction.op->cost(step_, instruction).flops);
    pending_.push_back(std::move(instruction));
  }
  void note(const Instruction& instruction) {
    for (TensorId input : instruction.inputs) {
      if (input != no_tensor) read_.insert(step_[input].storage);
    }
    for (TensorId output : instruction.outputs) {
      if (output != no_tensor) written_.insert(step_[output].storage);
    }
  }

  /// The number of pending instructions that run beside the collective that is waited for now: an even share of all that are
  /// pending or to come. Collectives around attention have little work of their own behind them and get some of the layer's other
  /// half. Pending instructions keep their inputs in memory, so that at most a few shares wait.
  std::size_t share_of(const Ahead& ahead) const {
    if (ahead.waits == 0) return pending_.size();
    double pending = 0, taken = 0;
    for (double flops : flops_) pending += flops;
    const double even = (pending + ahead.flops) / ahead.waits, share = std::max(even, pending - most_shares_pending * even);
    std::size_t count = 0;
    while (count < pending_.size() && taken + flops_[count] / 2 < share) taken += flops_[count++];
    return count;
  }

  void emit(std::size_t count) {
    if (count == 0) return;
    for (; count > 0; --count) {
      step_.instructions.push_back(std::move(pending_.front()));
      pending_.pop_front();
      flops_.pop_front();
    }
    read_.clear();
    written_.clear();
    for (const Instruction& instruction : pending_) note(instruction);
  }

  bool needs_pending(const Instruction& i) const {
    return std::any_of(i.inputs.begin(), i.inputs.end(),
                       [&](TensorId id) { return id != no_tensor && written_.contains(step_[id].storage); });
  }
  bool overwrites_what_pending_reads(const Instruction& i) const {
    return std::any_of(i.outputs.begin(), i.outputs.end(), [&](TensorId id) {
      return id != no_tensor && (read_.contains(step_[id].storage) || written_.contains(step_[id].storage));
    });
  }

  Program& step_;
  int axis_;
  std::vector<bool> travelling_;  // by tensor: made by a collective, not yet read
  std::deque<Instruction> pending_;
  std::deque<double> flops_;                     // of the pending ones
  std::unordered_set<TensorId> read_, written_;  // storages of the pending ones
};

}  // namespace

void delay_weight_gradients(Program& step, int axis) {
  Delay(step, axis).run();
}

}  // namespace consist::strategies
