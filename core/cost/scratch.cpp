// CostModel: the scratch of kernels, where no device is there to ask.
#include "core/cost/scratch.h"

#include <algorithm>
#include <cmath>

#include "consist/cost.h"
#include "consist/op.h"
#include "core/program/operands.h"

namespace consist {
namespace {

/// Bytes of the logits that a kernel makes for itself; 0: it makes none.
double logits_bytes(const Program& program, const Instruction& i) {
  static const Op* const of_loss[] = {registry().find("lm_head_loss"), registry().find("lm_head_loss_grad")};
  if (std::find(std::begin(of_loss), std::end(of_loss), i.op) == std::end(of_loss)) return 0;
  const Shape x = program.local(i.inputs[0]), w = program.local(i.inputs[1]);  // [..., c], [vocabulary, c]
  return static_cast<double>(x.rows() * w[0]) * static_cast<double>(size_of(program[i.inputs[0]].dtype));
}

}  // namespace

std::int64_t bytes_beside_attention(const Program& program, const Instruction& i) {
  static const Op *const forward = registry().find("attention"), *const backward = registry().find("attention_grad"),
                         *const part = registry().find("attention_part"),
                         *const part_grad = registry().find("attention_part_grad");
  if (i.op == part) return program.bytes(i.inputs[0]);
  if (i.op == part_grad) return program.bytes(i.inputs[1]) + program.bytes(i.inputs[2]) + program.bytes(i.inputs[3]);
  if ((i.op != forward && i.op != backward) || i.attributes.integer_or("zigzag", 0) == 0) return 0;
  const std::size_t keys = i.op == forward ? 1 : 2;
  return (program.bytes(i.inputs[keys]) + program.bytes(i.inputs[keys + 1])) * (i.op == forward ? 1 : 3);
}

double CostModel::scratch_base(const Program& program, const Instruction& instruction) const {
  const double chunk = machine_->device.chunk_bytes.value;
  const double logits = chunk > 0 ? logits_bytes(program, instruction) : 0;
  return logits > 0 ? logits / std::ceil(logits / chunk) : instruction.op->cost(program, instruction).bytes;
}

std::int64_t CostModel::scratch_bytes(const Program& program, const Instruction& instruction) const {
  if (instruction.queue != Queue::compute() || !instruction.op->touches_memory() || first_operand(instruction) == no_tensor ||
      instruction.op->is_collective())
    return 0;
  const DType operand = program[first_operand(instruction)].dtype;
  double ratio = 0;
  const Cost cost = instruction.op->cost(program, instruction);
  if (const Measured* of_op = measured(instruction.op, operand, cost.depth)) ratio = of_op->at(cost.flops, cost.bytes).scratch;
  if (ratio <= 0 && machine_->device.chunk_bytes.value > 0 && logits_bytes(program, instruction) > 0) ratio = 1;
  const std::int64_t beside = machine_->device_kind == "cuda" ? bytes_beside_attention(program, instruction) : 0;
  return beside + (ratio > 0 ? static_cast<std::int64_t>(std::ceil(ratio * scratch_base(program, instruction))) : 0);
}

}  // namespace consist
