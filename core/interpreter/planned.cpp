#include "core/interpreter/planned.h"

#include "consist/op.h"
#include "core/lower/waits.h"
#include "core/program/printer.h"

namespace consist::interpreter {

Planned planned(Program program, std::int64_t workspace, const std::map<std::string, std::int64_t>* states) {
  Planned result{std::move(program), {}, {}};
  for (const Instruction& i : result.program.instructions)
    result.workspaces.push_back(i.queue == Queue::compute() && i.op->touches_memory() ? workspace : 0);
  result.plan = plan_memory(result.program, result.workspaces, states);
  insert_waits(result.program, result.plan, result.workspaces);
  return result;
}

std::vector<Stretch> stretches(const Planned& planned, const Instruction& instruction, TensorId tensor) {
  const Tensor& t = planned.program[tensor];
  const Shape local = planned.program.local(tensor);
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  const std::int64_t begin = planned.plan.address[static_cast<std::size_t>(tensor)];
  if (t.row_stride == 0) {
    std::int64_t elements = local.elements();
    const bool in_flat_parts = instruction.op->is_collective() && instruction.attributes.integer_or("dim", 0) < 0;
    const AxisSet axes = in_flat_parts ? instruction.attributes.axes("axis") : AxisSet();
    if (in_flat_parts && t.placements.on(axes) != Placement::flat()) {
      const std::int64_t ranks = planned.program.mesh.size_of(axes);
      elements = (elements + ranks - 1) / ranks * ranks;
    }
    return {{t.space, begin, begin + elements * size}};
  }
  std::vector<Stretch> rows;
  for (std::int64_t row = 0; row < local.rows(); ++row) {
    const std::int64_t at = begin + row * t.row_stride * size;
    rows.push_back({t.space, at, at + local.last() * size});
  }
  return rows;
}

std::string place_of(const Program& program, InstructionId instruction) {
  return "rank " + std::to_string(program.rank) + ", " + to_text(program, instruction);
}

}  // namespace consist::interpreter
