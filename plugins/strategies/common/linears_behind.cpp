#include "plugins/strategies/common/linears_behind.h"

#include <algorithm>
#include <optional>

#include "consist/op.h"

namespace consist::strategies {

std::vector<InstructionId> linears_behind(const Program& program, const DefUse& def_use, TensorId activation) {
  if (!def_use.is_made(activation)) return {};
  const InstructionId at = def_use.producer(activation);
  const Instruction& i = program.instructions[static_cast<std::size_t>(at)];
  if (i.op->linear_part() == LinearPart::product) {
    if (program[i.inputs[1]].role != Role::parameter) return {};
    return {at};
  }
  if (i.op->adds_pairs() && i.outputs.size() == 1) {
    std::vector<InstructionId> linears = linears_behind(program, def_use, i.inputs[0]);
    const std::vector<InstructionId> added = linears_behind(program, def_use, i.inputs[1]);
    if (linears.empty() || added.empty()) return {};
    linears.insert(linears.end(), added.begin(), added.end());
    return linears;
  }
  const std::optional<ChannelSplit> split = i.op->channel_split(i.attributes);
  if (!split || split->inputs < 1 || i.op->attends()) return {};
  std::vector<InstructionId> linears;
  for (int k = 0; k < split->inputs; ++k) {
    const TensorId input = i.inputs[static_cast<std::size_t>(k)];
    if (input == no_tensor) return {};
    const std::vector<InstructionId> behind = linears_behind(program, def_use, input);
    if (behind.empty()) return {};
    for (const InstructionId at_linear : behind) {
      if (std::find(linears.begin(), linears.end(), at_linear) == linears.end()) linears.push_back(at_linear);
    }
  }
  return linears;
}

}  // namespace consist::strategies
