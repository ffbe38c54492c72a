// A planted error: the gradient of one parameter that the last micro-batch overwrites instead of adding to it.
#pragma once

#include <string>

#include "consist/op.h"
#include "core/interpreter/rank_programs.h"

namespace consist::test {

/// Plants it on all ranks, which accumulate; returns the number of instructions that it changed.
inline int overwrite_accumulated_gradient(interpreter::RankPrograms& programs, const std::string& parameter) {
  int changed = 0;
  for (interpreter::Planned& step : programs.steps) {
    for (Instruction& i : step.program.instructions) {
      if (!i.op->makes_weight_gradients() || i.outputs.size() != 1 || step.program[i.outputs[0]].name != parameter + ".grad")
        continue;
      const int sum = i.op->updates_in_place(0);
      if (sum < 0 || i.inputs[static_cast<std::size_t>(sum)] == no_tensor) continue;
      i.inputs[static_cast<std::size_t>(sum)] = no_tensor;
      ++changed;
    }
  }
  return changed;
}

}  // namespace consist::test
