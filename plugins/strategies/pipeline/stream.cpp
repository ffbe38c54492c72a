#include "plugins/strategies/pipeline/stream.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "consist/analysis.h"
#include "consist/op.h"

namespace consist::pipeline {
namespace {

std::size_t index(TensorId id) {
  return static_cast<std::size_t>(id);
}

/// Operands and sum of an instruction that adds, such as a norm of x + residual; absent where it adds nothing.
struct Summed {
  TensorId x = no_tensor, residual = no_tensor, sum = no_tensor;
  explicit operator bool() const { return residual != no_tensor && sum != no_tensor; }
};
Summed summed_by(const Instruction& i) {
  const std::optional<ResidualSum> of = i.op->residual_sum();
  if (!of) return {};
  const auto at = [](const std::vector<TensorId>& tensors, int k) {
    return static_cast<std::size_t>(k) < tensors.size() ? tensors[static_cast<std::size_t>(k)] : no_tensor;
  };
  return {at(i.inputs, of->x), at(i.inputs, of->residual), at(i.outputs, of->sum)};
}

/// True if the gradient of the instruction that makes `tensor` does not read its value.
bool may_be_overwritten(const Program& program, std::size_t maker, TensorId tensor) {
  const Instruction& i = program.instructions[maker];
  const auto output = std::find(i.outputs.begin(), i.outputs.end(), tensor) - i.outputs.begin();
  return program[tensor].storage == tensor && !i.op->gradient_reads_output(static_cast<int>(output));
}

}  // namespace

Crossing::Crossing(const Program& forward)
    : forward_(forward), last_(forward.tensors.size(), 0), sendable_(forward.tensors.size(), false) {
  std::vector<bool> of_parameters(forward.tensors.size(), false);
  for (std::size_t t = 0; t < forward.tensors.size(); ++t) of_parameters[t] = forward.tensors[t].state;
  for (const Parameter& p : forward.parameters) of_parameters[index(p.tensor)] = true;
  for (const Constant& c : forward.constants) of_parameters[index(c.tensor)] = true;
  for (std::size_t i = 0; i < forward.instructions.size(); ++i) {
    const Instruction& instruction = forward.instructions[i];
    bool free = !instruction.inputs.empty();
    for (TensorId input : instruction.inputs) {
      if (input == no_tensor) continue;
      last_[index(input)] = i;
      free = free && of_parameters[index(input)];
    }
    for (TensorId output : instruction.outputs) {
      if (output == no_tensor) continue;
      of_parameters[index(output)] = free;
      sendable_[index(output)] = !free;
    }
  }
}

std::vector<TensorId> Crossing::sent() const {
  const Instruction& next = forward_.instructions[at_];
  const Summed summed = summed_by(next);
  if (!summed) return alive_;
  std::vector<TensorId> others;
  for (TensorId id : alive_) {
    const bool summand = (id == summed.x || id == summed.residual) && last_[index(id)] == at_;
    if (!summand) others.push_back(id);
  }
  if (others.size() + 2 != alive_.size()) return alive_;
  others.push_back(summed.sum);
  return others;
}

void Crossing::advance() {
  for (TensorId output : forward_.instructions[at_].outputs) {
    if (output != no_tensor && sendable_[index(output)]) alive_.push_back(output);
  }
  std::erase_if(alive_, [&](TensorId id) { return last_[index(id)] <= at_; });
  ++at_;
}

void sum_before_cuts(Program& forward) {
  const DefUse def_use(forward);
  std::map<std::size_t, std::vector<Instruction>> behind;  // inserted after an instruction
  for (Instruction& norm : forward.instructions) {
    const Summed summed = summed_by(norm);
    if (!summed) continue;
    const auto [x, residual, sum] = summed;
    if (!def_use.is_made(x) || !def_use.is_made(residual)) continue;
    const auto later = static_cast<std::size_t>(std::max(def_use.producer(x), def_use.producer(residual)));
    if (forward.instructions[later].tag.stage >= norm.tag.stage) continue;
    // The sum takes the memory of x, which therefore no other instruction may read, its maker's gradient included.
    if (def_use.only_user(x) < 0 || !may_be_overwritten(forward, static_cast<std::size_t>(def_use.producer(x)), x)) continue;
    Instruction add{.op = &registry().get("add"), .inputs = {x, residual}, .outputs = {sum}};
    add.tag = forward.instructions[later].tag;
    add.tag.inserted_by = "pipeline";
    forward[sum].storage = forward[x].storage;
    forward[sum].offset = forward[x].offset;
    behind[later].push_back(std::move(add));
    const ResidualSum of = *norm.op->residual_sum();
    norm.inputs[static_cast<std::size_t>(of.x)] = sum;
    norm.inputs[static_cast<std::size_t>(of.residual)] = norm.outputs[static_cast<std::size_t>(of.sum)] = no_tensor;
  }
  if (behind.empty()) return;
  std::vector<Instruction> old = std::exchange(forward.instructions, {});
  for (std::size_t i = 0; i < old.size(); ++i) {
    forward.instructions.push_back(std::move(old[i]));
    if (const auto added = behind.find(i); added != behind.end())
      std::move(added->second.begin(), added->second.end(), std::back_inserter(forward.instructions));
  }
}

}  // namespace consist::pipeline
