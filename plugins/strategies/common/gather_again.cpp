#include "plugins/strategies/common/gather_again.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "consist/op.h"

namespace consist::strategies {

void gather_again(Program& step, int axis) {
  std::vector<Instruction> gathers;             // of forward
  std::map<TensorId, std::size_t> gather_of;    // by what they make
  std::map<TensorId, TensorId> gathered_again;  // by the same
  std::set<TensorId> read_in_forward;
  std::vector<Instruction> old = std::move(step.instructions);
  step.instructions.clear();
  for (Instruction& i : old) {
    const bool forward = i.tag.phase == Phase::forward;
    for (TensorId& input : i.inputs) {
      const auto gather = gather_of.find(input);
      if (gather == gather_of.end()) continue;
      if (forward) read_in_forward.insert(input);
      if (forward || !read_in_forward.contains(input)) continue;  // only backward reads it, so that it is not kept
      if (!gathered_again.contains(input)) {
        Instruction made = gathers[gather->second];
        for (TensorId& output : made.outputs) {
          Tensor copy = step[output];
          const auto again = copy.storage = static_cast<TensorId>(step.tensors.size());
          step.tensors.push_back(std::move(copy));
          gathered_again[output] = again;
          output = again;
        }
        made.tag = i.tag;
        step.instructions.push_back(std::move(made));
      }
      input = gathered_again.at(input);
    }
    // Along the sequence: other gathers are not of activations that a rank has a slice of.
    if (forward && i.op->movement() == Movement::all_gather && i.queue.axes() == axis && i.attributes.integer("dim") == 1) {
      for (TensorId output : i.outputs) gather_of.emplace(output, gathers.size());
      gathers.push_back(i);
    }
    step.instructions.push_back(std::move(i));
  }
}

}  // namespace consist::strategies
