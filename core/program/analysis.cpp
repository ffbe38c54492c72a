#include "consist/analysis.h"

#include <algorithm>
#include <utility>

namespace consist {
namespace {

/// Calls `call` for every tensor that an instruction reads, once for each, with the place of the instruction.
template <typename Call>
void each_use(std::size_t tensors, std::span<const Instruction> instructions, Call call) {
  std::vector<InstructionId> last(tensors, -1);  // that was named
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    for (TensorId input : instructions[i].inputs) {
      if (input == no_tensor || last[static_cast<std::size_t>(input)] == static_cast<InstructionId>(i)) continue;
      last[static_cast<std::size_t>(input)] = static_cast<InstructionId>(i);
      call(static_cast<std::size_t>(input), static_cast<InstructionId>(i));
    }
  }
}

}  // namespace

DefUse::DefUse(std::size_t tensors, std::span<const Instruction> instructions)
    : producer_(tensors, -1), first_user_(tensors + 1, 0) {
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    for (TensorId output : instructions[i].outputs) {
      if (output != no_tensor) producer_[static_cast<std::size_t>(output)] = static_cast<InstructionId>(i);
    }
  }
  each_use(tensors, instructions, [&](std::size_t tensor, InstructionId /*at*/) { ++first_user_[tensor + 1]; });
  for (std::size_t t = 0; t < tensors; ++t) first_user_[t + 1] += first_user_[t];
  users_.resize(first_user_[tensors]);
  std::vector<std::size_t> next(first_user_.begin(), first_user_.end() - 1);
  each_use(tensors, instructions, [&](std::size_t tensor, InstructionId at) { users_[next[tensor]++] = at; });
}

AxisSet axes_with(const Tensor& tensor, Placement placement, AxisSet among) {
  AxisSet found;
  for (const int axis : among) {
    if (tensor.placements[axis] == placement) found |= axis;
  }
  return found;
}

std::vector<AxisSet> sets_with(const Program& program, std::span<const TensorId> tensors, Placement placement, AxisSet among) {
  std::vector<AxisSet> sets;
  for (const TensorId tensor : tensors) {
    const AxisSet found = tensor == no_tensor ? AxisSet() : axes_with(program[tensor], placement, among);
    if (!found.empty() && std::ranges::find(sets, found) == sets.end()) sets.push_back(found);
  }
  std::ranges::sort(sets, [](AxisSet a, AxisSet b) { return std::pair(a.count(), a) > std::pair(b.count(), b); });
  return sets;
}

}  // namespace consist
