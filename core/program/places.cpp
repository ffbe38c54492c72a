#include "consist/places.h"

#include "consist/error.h"
#include "consist/op.h"

namespace consist {
namespace {

std::int64_t element_bytes(const Tensor& tensor) {
  return static_cast<std::int64_t>(size_of(tensor.dtype));
}

}  // namespace

std::int64_t extent_of(const Program& program, TensorId tensor) {
  const Tensor& t = program[tensor];
  if (t.row_stride == 0) return program.bytes(tensor);
  const Shape local = program.local(tensor);
  return local.elements() == 0 ? 0 : ((local.rows() - 1) * t.row_stride + local.last()) * element_bytes(t);
}

std::int64_t extent_moved(const Program& program, const Instruction& instruction, TensorId tensor) {
  const std::int64_t extent = extent_of(program, tensor);
  if (!instruction.op->is_collective() || instruction.attributes.integer_or("dim", 0) >= 0) return extent;
  const AxisSet axes = instruction.attributes.axes("axis");
  if (program[tensor].placements.on(axes) == Placement::flat()) return extent;  // a part is as long as the longest
  const std::int64_t elements = program.local(tensor).elements(), ranks = program.mesh.size_of(axes);
  return (elements + ranks - 1) / ranks * ranks * element_bytes(program[tensor]);
}

bool extents_overlap(const Program& program, TensorId a, TensorId b) {
  const std::int64_t begin_a = program[a].offset, begin_b = program[b].offset;
  return program[a].storage == program[b].storage && begin_a < begin_b + extent_of(program, b) &&
         begin_b < begin_a + extent_of(program, a);
}

std::vector<InstructionId> last_uses(const Program& program) {
  std::vector<InstructionId> last(program.tensors.size(), -1);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (const auto* tensors : {&program.instructions[i].inputs, &program.instructions[i].outputs}) {
      for (TensorId id : *tensors) {
        if (id != no_tensor) last[static_cast<std::size_t>(program[id].storage)] = static_cast<InstructionId>(i);
      }
    }
  }
  return last;
}

bool lie_behind_each_other(const Program& program, TensorId first, TensorId next) {
  const Tensor &a = program[first], &b = program[next];
  return a.storage == b.storage && a.row_stride == 0 && b.row_stride == 0 && b.offset == a.offset + program.bytes(first);
}

bool lie_side_by_side(const Program& program, TensorId first, TensorId next) {
  const Tensor &a = program[first], &b = program[next];
  return a.storage == b.storage && a.dtype == b.dtype && a.row_stride != 0 && a.row_stride == b.row_stride &&
         program.local(first).rows() == program.local(next).rows() &&
         b.offset == a.offset + program.local(first).last() * element_bytes(a);
}

std::int64_t unstrided_begin(const Program& program, TensorId tensor) {
  const Tensor& t = program[tensor];
  if (t.row_stride == 0) return t.offset;
  const std::int64_t row = t.row_stride * element_bytes(t), own = program.local(tensor).last() * element_bytes(t);
  const std::int64_t storage = program.bytes(t.storage), column = t.offset % row;
  if (storage % row != 0 || column + own > row || t.offset + extent_of(program, tensor) > storage)
    throw ProgramError("the strided view '" + t.name + "' does not lie inside rows of its storage '" + program[t.storage].name +
                       "'");
  return storage / row * column + t.offset / row * own;
}

}  // namespace consist
