#include "plugins/strategies/zero/strip.h"

#include <algorithm>
#include <optional>

#include "consist/analysis.h"
#include "consist/op.h"

namespace consist::zero {
namespace {

class Stripper {
 public:
  Stripper(Program& step, AxisSet axes)
      : step_(step),
        axes_(axes),
        def_use_(step),
        source_(step.tensors.size(), no_tensor),
        removed_(step.instructions.size(), false) {}

  Stripped run() {
    for (std::size_t i = 0; i < step_.instructions.size(); ++i) find_gather(i);
    for (std::size_t p = 0; p < step_.parameters.size(); ++p) find_reductions(p);
    const std::vector<InstructionId> renumbered = remove();
    for (PartialGradient& g : stripped_.gradients) g.ready = renumbered[static_cast<std::size_t>(g.ready)];
    std::stable_sort(stripped_.gradients.begin(), stripped_.gradients.end(),
                     [](const PartialGradient& a, const PartialGradient& b) { return a.ready < b.ready; });
    return std::move(stripped_);
  }

 private:
  static std::size_t index(TensorId id) { return static_cast<std::size_t>(id); }

  const Instruction* producer(TensorId id) const {
    const InstructionId i = def_use_.producer(id);
    return i < 0 ? nullptr : &step_.instructions[static_cast<std::size_t>(i)];
  }

  /// True if `i` gathers flat shards or reduces to them along the axes.
  bool is_flat(const Instruction& i, Movement movement) const {
    return i.op->movement() == movement && i.attributes.axes("axis") == axes_ && i.attributes.integer("dim") < 0;
  }

  bool is_of_states(TensorId id) const {
    const Instruction* by = producer(id);
    return step_[id].state || (by != nullptr && by->attributes.integer_or("once_per_step", 0) != 0);
  }

  void find_gather(std::size_t position) {
    const Instruction& i = step_.instructions[position];
    if (!is_flat(i, Movement::all_gather)) return;
    if (!std::all_of(i.inputs.begin(), i.inputs.end(), [&](TensorId id) { return is_of_states(id); })) return;
    for (std::size_t k = 0; k < i.outputs.size(); ++k) source_[index(i.outputs[k])] = i.inputs[k];
    removed_[position] = true;
  }

  /// Follows a gradient back over micro-batches: the sum so far plus the newest reduced one, down to the first.
  void find_reductions(std::size_t parameter) {
    if (step_.parameters[parameter].gradient == no_tensor) return;
    std::vector<PartialGradient> found;
    std::vector<InstructionId> superfluous;
    for (TensorId sum = step_.parameters[parameter].gradient;;) {
      const Instruction* by = producer(sum);
      TensorId part = sum;
      const bool added = by != nullptr && by->op->adds_pairs();
      if (added) {
        superfluous.push_back(def_use_.producer(sum));
        part = by->inputs[1];
        sum = by->inputs[0];
        by = producer(part);
      }
      if (by == nullptr || !is_flat(*by, Movement::reduce_scatter)) return;
      superfluous.push_back(def_use_.producer(part));
      const TensorId whole = by->inputs[0];
      found.push_back({parameter, whole, def_use_.producer(whole), !added, step_[whole].dtype});
      if (!added) break;
    }
    for (InstructionId i : superfluous) removed_[static_cast<std::size_t>(i)] = true;
    stripped_.gradients.insert(stripped_.gradients.end(), found.rbegin(), found.rend());
  }

  /// Drops what is marked; returns the new number of each instruction.
  std::vector<InstructionId> remove() {
    std::vector<InstructionId> renumbered(step_.instructions.size(), -1);
    std::vector<Instruction> kept;
    kept.reserve(step_.instructions.size());
    for (std::size_t i = 0; i < step_.instructions.size(); ++i) {
      if (removed_[i]) continue;
      renumbered[i] = static_cast<InstructionId>(kept.size());
      Instruction& instruction = step_.instructions[i];
      for (std::size_t k = 0; k < instruction.inputs.size(); ++k) {
        const TensorId input = instruction.inputs[k];
        if (input == no_tensor || source_[index(input)] == no_tensor) continue;
        const TensorId source = source_[index(input)];
        const InstructionId by = def_use_.producer(source);
        stripped_.uses.push_back({renumbered[i], k, source, by < 0 ? by : renumbered[static_cast<std::size_t>(by)]});
      }
      kept.push_back(std::move(instruction));
    }
    step_.instructions = std::move(kept);
    return renumbered;
  }

  Program& step_;
  AxisSet axes_;
  const DefUse def_use_;  // of the step as it was
  std::vector<TensorId> source_;         // by gathered tensor: the flat state
  std::vector<bool> removed_;
  Stripped stripped_;
};

}  // namespace

Stripped strip(Program& step, AxisSet axes) {
  return Stripper(step, axes).run();
}

}  // namespace consist::zero
