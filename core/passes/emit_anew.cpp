#include "core/passes/emit_anew.h"

#include "consist/analysis.h"
#include "consist/error.h"
#include "consist/rewrite.h"

namespace consist {

namespace {

TensorId at(const std::vector<TensorId>& map, TensorId old) {
  return old == no_tensor ? no_tensor : map[static_cast<std::size_t>(old)];
}

/// `tensor` resharded to the placements of `wish`, but for axes on which that is replicated: there it stays as it is.
TensorId moved(Builder& builder, TensorId tensor, const Tensor& wish) {
  Placements to = builder[tensor].placements;
  for (int axis = 0; axis < builder.program().mesh.axes(); ++axis) {
    const Placement placement = wish.placements[axis];
    if (!placement.is_replicate() && !placement.is_partial()) to[axis] = placement;
  }
  return builder.reshard(tensor, to);
}

/// Emits the same instruction with other inputs.
std::vector<TensorId> emit_again(Builder& builder, const Program& old, const Instruction& i, std::vector<TensorId> inputs) {
  std::vector<std::string> names;
  for (TensorId output : i.outputs) names.push_back(output == no_tensor ? "" : old[output].name);
  return builder.emit(i.op->name(), std::move(inputs), i.attributes, std::move(names));
}

}  // namespace

Program emit_anew(const Program& old, const Replace& replace) {
  Program program;
  program.mesh = old.mesh;
  program.rank = old.rank;
  program.parameters = old.parameters;
  program.constants = old.constants;
  program.micro_batches = old.micro_batches;
  program.costs = old.costs;
  program.fields = old.fields;
  program.zigzag = old.zigzag;

  const DefUse def_use(old);
  std::vector<TensorId> map(old.tensors.size(), no_tensor);
  for (std::size_t t = 0; t < old.tensors.size(); ++t) {
    if (def_use.is_made(static_cast<TensorId>(t))) continue;
    map[t] = static_cast<TensorId>(program.tensors.size());
    program.tensors.push_back(old.tensors[t]);
    program.tensors.back().storage = map[t];
  }

  Builder builder(program);
  for (const Instruction& i : old.instructions) {
    if (i.op->changes_placement()) {
      if (i.inputs.size() != i.outputs.size())
        throw ProgramError("op '" + std::string(i.op->name()) + "' has another number of outputs than inputs");
      for (std::size_t k = 0; k < i.outputs.size(); ++k) {
        builder.tag = i.tag;
        map[static_cast<std::size_t>(i.outputs[k])] =
            moved(builder, map[static_cast<std::size_t>(i.inputs[k])], old[i.outputs[k]]);
      }
      continue;
    }
    std::vector<TensorId> inputs;
    for (TensorId input : i.inputs) inputs.push_back(at(map, input));
    builder.tag = i.tag;
    std::optional<std::vector<TensorId>> replaced;
    if (replace) replaced = replace(builder, i, inputs);
    const std::vector<TensorId> outputs = replaced ? *std::move(replaced) : emit_again(builder, old, i, std::move(inputs));
    if (outputs.size() != i.outputs.size())
      throw ProgramError("an instruction of op '" + std::string(i.op->name()) +
                         "' has another number of outputs than its op makes");
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (i.outputs[k] != no_tensor && outputs[k] != no_tensor)
        map[static_cast<std::size_t>(i.outputs[k])] = moved(builder, outputs[k], old[i.outputs[k]]);
    }
  }
  for (Parameter& parameter : program.parameters) {
    parameter.tensor = at(map, parameter.tensor);
    parameter.master = at(map, parameter.master);
    for (ParameterState& state : parameter.states) state.tensor = at(map, state.tensor);
  }
  for (Constant& constant : program.constants) constant.tensor = at(map, constant.tensor);
  program.outputs = old.outputs;
  for (StepOutput& output : program.outputs) output.tensor = at(map, output.tensor);
  for (Router router : old.routers) {
    router.statistics = at(map, router.statistics);
    program.routers.push_back(router);
  }
  program.loss = at(map, old.loss);
  return program;
}

Program propagate_shardings(const Program& program) {
  return emit_anew(program);
}

}  // namespace consist
