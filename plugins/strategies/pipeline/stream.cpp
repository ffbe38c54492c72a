#include "plugins/strategies/pipeline/stream.h"

#include <algorithm>
#include <map>
#include <utility>

#include "consist/op.h"

namespace consist::pipeline {
namespace {

std::size_t index(TensorId id) {
  return static_cast<std::size_t>(id);
}

/// Whether it is a norm of x + residual.
bool adds_residual(const Instruction& i) {
  return i.op->name() == "rms_norm" && i.inputs.size() > 1 && i.inputs[1] != no_tensor && i.outputs.size() > 1 &&
         i.outputs[1] != no_tensor;
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
  if (!adds_residual(next)) return alive_;
  std::vector<TensorId> others;
  for (TensorId id : alive_) {
    const bool summand = (id == next.inputs[0] || id == next.inputs[1]) && last_[index(id)] == at_;
    if (!summand) others.push_back(id);
  }
  if (others.size() + 2 != alive_.size()) return alive_;
  others.push_back(next.outputs[1]);
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
  std::vector<std::size_t> maker(forward.tensors.size(), forward.instructions.size());
  std::vector<int> readers(forward.tensors.size(), 0);
  std::map<std::size_t, std::vector<Instruction>> behind;  // what follows an instruction
  for (std::size_t i = 0; i < forward.instructions.size(); ++i) {
    for (TensorId id : forward.instructions[i].outputs) {
      if (id != no_tensor) maker[index(id)] = i;
    }
    for (TensorId id : forward.instructions[i].inputs) {
      if (id != no_tensor) ++readers[index(id)];
    }
  }
  for (Instruction& norm : forward.instructions) {
    if (!adds_residual(norm)) continue;
    const TensorId x = norm.inputs[0], residual = norm.inputs[1], sum = norm.outputs[1];
    const std::size_t later = std::max(maker[index(x)], maker[index(residual)]);
    if (later >= forward.instructions.size() || forward.instructions[later].tag.stage >= norm.tag.stage) continue;
    // The sum takes the place of x, which therefore nobody else may read: the gradient of a linear does not.
    if (readers[index(x)] != 1 || forward.instructions[maker[index(x)]].op->name() != "linear") continue;
    Instruction add{.op = &registry().get("add"), .inputs = {x, residual}, .outputs = {sum}};
    add.tag = forward.instructions[later].tag;
    add.tag.inserted_by = "pipeline";
    forward[sum].storage = forward[x].storage;
    forward[sum].offset = forward[x].offset;
    behind[later].push_back(std::move(add));
    norm.inputs[0] = sum;
    norm.inputs[1] = norm.outputs[1] = no_tensor;
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
