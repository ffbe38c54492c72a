#include "plugins/strategies/pipeline/unused_tensors.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace consist::pipeline {
namespace {

std::size_t index_of(TensorId id) {
  return static_cast<std::size_t>(id);
}

}  // namespace

void drop_unused_tensors(Program& program) {
  std::vector<bool> used(program.tensors.size(), false);
  auto use = [&](TensorId id) {
    if (id == no_tensor) return;
    used[index_of(id)] = true;
    used[index_of(program[id].storage)] = true;
  };
  for (const Instruction& i : program.instructions) {
    for (TensorId id : i.inputs) use(id);
    for (TensorId id : i.outputs) use(id);
  }
  for (const Parameter& p : program.parameters) {
    use(p.tensor);
    use(p.gradient);
    use(p.master);
    for (const ParameterState& state : p.states) use(state.tensor);
  }
  use(program.loss);
  for (const StepOutput& output : program.outputs) use(output.tensor);
  for (const Router& router : program.routers) use(router.statistics);
  std::erase_if(program.constants, [&](const Constant& constant) { return !used[index_of(constant.tensor)]; });

  std::vector<TensorId> now(program.tensors.size(), no_tensor);
  std::vector<Tensor> kept;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    if (!used[t]) continue;
    now[t] = static_cast<TensorId>(kept.size());
    kept.push_back(std::move(program.tensors[t]));
  }
  auto renumber = [&](TensorId& id) {
    if (id != no_tensor) id = now[index_of(id)];
  };
  for (Tensor& tensor : kept) renumber(tensor.storage);
  for (Instruction& i : program.instructions) {
    std::for_each(i.inputs.begin(), i.inputs.end(), renumber);
    std::for_each(i.outputs.begin(), i.outputs.end(), renumber);
  }
  for (Parameter& p : program.parameters) {
    renumber(p.tensor);
    renumber(p.gradient);
    renumber(p.master);
    for (ParameterState& state : p.states) renumber(state.tensor);
  }
  for (Constant& constant : program.constants) renumber(constant.tensor);
  renumber(program.loss);
  for (StepOutput& output : program.outputs) renumber(output.tensor);
  for (Router& router : program.routers) renumber(router.statistics);
  program.tensors = std::move(kept);
}

}  // namespace consist::pipeline
