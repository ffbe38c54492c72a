#include "core/program/operands.h"

#include <algorithm>

namespace consist {

TensorId first_operand(const Instruction& instruction) {
  const auto first =
      std::find_if(instruction.inputs.begin(), instruction.inputs.end(), [](TensorId id) { return id != no_tensor; });
  return first == instruction.inputs.end() ? no_tensor : *first;
}

std::string first_output_name(const Program& program, const Instruction& instruction) {
  const bool any = !instruction.outputs.empty() && instruction.outputs[0] != no_tensor;
  return any ? program[instruction.outputs[0]].name : "";
}

std::int64_t message_bytes(const Program& program, const Instruction& collective) {
  std::int64_t bytes = 0;
  for (TensorId id : collective.inputs.empty() ? collective.outputs : collective.inputs) {
    if (id != no_tensor) bytes += program.bytes(id);
  }
  return bytes;
}

}  // namespace consist
