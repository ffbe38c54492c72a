#include "plugins/strategies/common/gather_again.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "consist/op.h"

namespace consist::strategies {

void gather_again(Program& step, int axis) {
  std::map<TensorId, Instruction> gathers;      // of forward, by what they make
  std::map<TensorId, TensorId> gathered_again;  // by the same
  std::set<TensorId> read_in_forward;
  std::vector<Instruction> old = std::move(step.instructions);
  step.instructions.clear();
  for (Instruction& i : old) {
    const bool forward = i.tag.phase == Phase::forward;
    for (TensorId& input : i.inputs) {
      const auto gather = gathers.find(input);
      if (gather == gathers.end()) continue;
      if (forward) read_in_forward.insert(input);
      if (forward || !read_in_forward.contains(input)) continue;  // what only backward reads is not kept for it
      auto [again, first] = gathered_again.try_emplace(input);
      if (first) {
        Tensor copy = step[input];
        again->second = copy.storage = static_cast<TensorId>(step.tensors.size());
        step.tensors.push_back(std::move(copy));
        Instruction made = gather->second;
        made.outputs = {again->second};
        made.tag = i.tag;
        step.instructions.push_back(std::move(made));
      }
      input = again->second;
    }
    // Along the sequence: other gathers are not of activations that a rank has a part of.
    if (forward && i.op->movement() == Movement::all_gather && i.queue.axes() == axis && i.outputs.size() == 1 &&
        i.attributes.integer("dim") == 1) {
      gathers.emplace(i.outputs[0], i);
    }
    step.instructions.push_back(std::move(i));
  }
}

}  // namespace consist::strategies
