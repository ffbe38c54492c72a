// CostModel: the scratch of kernels, where no device is there to ask.
#include <algorithm>
#include <cmath>
#include <vector>

#include "consist/cost.h"
#include "consist/op.h"
#include "core/cost/attention_calls.h"
#include "core/program/operands.h"

namespace consist {
namespace {

/// Bytes of the logits that a kernel makes for itself; 0: it makes none.
double logits_bytes(const Program& program, const Instruction& i) {
  static const Op* const of_heads[] = {registry().find("lm_head_loss"), registry().find("lm_head_loss_grad"),
                                       registry().find("lm_head_log_probability"),
                                       registry().find("lm_head_log_probability_grad")};
  if (std::find(std::begin(of_heads), std::end(of_heads), i.op) == std::end(of_heads)) return 0;
  const Shape x = program.local(i.inputs[0]), w = program.local(i.inputs[1]);  // [..., c], [vocabulary, c]
  return static_cast<double>(x.rows() * w[0]) * static_cast<double>(size_of(program[i.inputs[0]].dtype));
}

}  // namespace

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
  const Cost cost = instruction.op->cost(program, instruction);
  const Measured* const of_op = measured(instruction.op, operand, cost.depth);
  const auto workspace = [&](double flops, double bytes, double base) {
    double ratio = of_op != nullptr ? of_op->at(flops, bytes).scratch : 0;
    if (ratio <= 0 && machine_->device.chunk_bytes.value > 0 && logits_bytes(program, instruction) > 0) ratio = 1;
    return ratio > 0 ? static_cast<std::int64_t>(std::ceil(ratio * base)) : 0;
  };
  std::vector<AttentionCalls> ranks;
  if (machine_->device_kind == "cuda") ranks = attention_calls(program, instruction);
  if (ranks.empty()) return workspace(cost.flops, cost.bytes, scratch_base(program, instruction));
  std::int64_t most = 0;
  for (const AttentionCalls& of_rank : ranks) {
    std::int64_t inner = 0;
    for (const AttentionCall& call : of_rank.calls)
      inner = std::max(inner, workspace(call.flops, call.bytes, call.square_bytes));
    most = std::max(most, of_rank.scratch + inner);
  }
  return most;
}

}  // namespace consist
