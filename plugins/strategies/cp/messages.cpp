#include "plugins/strategies/cp/messages.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "consist/op.h"

namespace consist::context_parallel {
namespace {

bool reads(const Instruction& i, const std::vector<TensorId>& tensors) {
  return std::any_of(i.inputs.begin(), i.inputs.end(),
                     [&](TensorId id) { return std::find(tensors.begin(), tensors.end(), id) != tensors.end(); });
}

bool alike(const Instruction& a, const Instruction& b) {
  return a.op == b.op && a.queue == b.queue && a.attributes.key() == b.attributes.key() && a.tag.phase == b.tag.phase &&
         a.tag.micro_batch == b.tag.micro_batch && a.tag.layer == b.tag.layer;
}

}  // namespace

bool moves_activations(const Program& program, const Instruction& i, int axis) {
  if (!i.op->is_collective() || i.queue.axes() != axis || i.inputs.empty()) return false;
  const Tensor& moved = program[i.inputs[0]];
  return moved.role == Role::activation && moved.shape.rank() >= 3;
}

void join_messages(Program& step, int axis) {
  std::vector<Instruction> joined;
  for (Instruction& i : step.instructions) {
    const bool with_last = !joined.empty() && moves_activations(step, i, axis) && moves_activations(step, joined.back(), axis) &&
                           alike(joined.back(), i) && !reads(i, joined.back().outputs);
    if (!with_last) {
      joined.push_back(std::move(i));
      continue;
    }
    Instruction& last = joined.back();
    last.inputs.insert(last.inputs.end(), i.inputs.begin(), i.inputs.end());
    last.outputs.insert(last.outputs.end(), i.outputs.begin(), i.outputs.end());
  }
  step.instructions = std::move(joined);
}

}  // namespace consist::context_parallel
