#include "plugins/strategies/cp/repeated_heads.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "consist/analysis.h"
#include "consist/error.h"
#include "consist/op.h"
#include "plugins/strategies/common/linears_behind.h"

namespace consist::context_parallel {

void repeat_heads(Program& forward, const std::vector<RepeatedHeads>& wanted) {
  if (wanted.empty()) return;
  const DefUse def_use(forward);
  std::map<InstructionId, RepeatedHeads> of_linear;
  for (const RepeatedHeads& heads : wanted) {
    const std::vector<InstructionId> linears = strategies::linears_behind(forward, def_use, heads.activation);
    const auto is_part = [&](InstructionId linear) {  // of a linear whose other channels are no such heads
      const TensorId y = forward.instructions[static_cast<std::size_t>(linear)].outputs[0];
      return forward[y].shape.last() != forward[heads.activation].shape.last();
    };
    if (linears.empty() || std::ranges::any_of(linears, is_part)) {
      throw UsageError(
          "cp: heads of '" + forward[heads.activation].name +
          "' would be repeated, but no linear makes it as it is; choose a size for cp that divides the heads, or --cp.attention "
          "gather");
    }
    for (const InstructionId linear : linears) of_linear.emplace(linear, heads);
  }
  std::vector<Instruction> old = std::move(forward.instructions);
  forward.instructions.clear();
  for (std::size_t n = 0; n < old.size(); ++n) {
    Instruction& i = old[n];
    if (const auto heads = of_linear.find(static_cast<InstructionId>(n)); heads != of_linear.end()) {
      // Along no axis: each rank makes all repeated heads of its tokens.
      const Attributes attributes{
          {"axis", AxisSet()}, {"heads", heads->second.heads}, {"head_dim", heads->second.head_dim}};
      for (std::size_t k = 1; k < i.inputs.size(); ++k) {
        if (i.inputs[k] == no_tensor) continue;
        const auto made = static_cast<TensorId>(forward.tensors.size());
        forward.tensors.push_back({.name = forward[i.inputs[k]].name + ".heads", .storage = made});
        forward.instructions.push_back({.op = &registry().get("repeat_heads"),
                                        .inputs = {i.inputs[k]},
                                        .outputs = {made},
                                        .attributes = attributes,
                                        .tag = i.tag});
        i.inputs[k] = made;
      }
    }
    forward.instructions.push_back(std::move(i));
  }
}

}  // namespace consist::context_parallel
