#include "core/passes/work.h"

#include <algorithm>

#include "consist/op.h"
#include "core/program/operands.h"

namespace consist {
namespace {

double flops_rate(const Program& program, const Instruction& instruction, const DeviceRates& rates) {
  const DType operand = program[first_operand(instruction)].dtype;
  const std::string_view op = instruction.op->name();
  if (op.starts_with("attention") && operand != DType::f32)
    return (op == "attention_grad" ? rates.attention_grad : rates.attention) * rates.peak;
  return rates.product_rate(operand);
}

}  // namespace

double DeviceRates::product_rate(DType operand) const {
  if (operand == DType::f32) return products * peak_fp32;
  const bool fp8 = operand == DType::e4m3 || operand == DType::e5m2;
  return products * (fp8 && peak_fp8 > 0 ? peak_fp8 : peak);
}

double seconds_of(const Program& program, const Instruction& instruction, const DeviceRates& rates) {
  const Cost cost = instruction.op->cost(program, instruction);
  const double moving = cost.bytes / rates.memory;
  return cost.flops > 0 ? std::max(moving, cost.flops / flops_rate(program, instruction, rates)) : moving;
}

double work_of(const Program& program, const Instruction& instruction) {
  return seconds_of(program, instruction, h200_rates);
}

double compute_seconds(const Program& program, const Instruction& instruction) {
  const bool works = instruction.queue == Queue::compute() && instruction.op->touches_memory();
  return works && first_operand(instruction) != no_tensor ? work_of(program, instruction) : 0;
}

}  // namespace consist
