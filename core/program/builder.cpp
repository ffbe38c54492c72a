#include "consist/builder.h"

#include <algorithm>

#include "consist/error.h"

namespace consist {
namespace {

Types types_of(const Program& program, const std::vector<TensorId>& tensors) {
  Types types(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] != no_tensor) types[i] = TensorType{program[tensors[i]].dtype, program[tensors[i]].shape};
  }
  return types;
}

std::vector<Placement> placements_along(const Program& program, const std::vector<TensorId>& tensors, int axis) {
  std::vector<Placement> placements(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] != no_tensor) placements[i] = program[tensors[i]].placements[axis];
  }
  return placements;
}

}  // namespace

TensorId Builder::add_tensor(Tensor tensor) {
  const auto id = static_cast<TensorId>(program_.tensors.size());
  if (tensor.storage == no_tensor) tensor.storage = id;
  program_.tensors.push_back(std::move(tensor));
  return id;
}

TensorId Builder::input(std::string name, DType dtype, Shape shape, Placements placements) {
  return add_tensor({.name = std::move(name), .dtype = dtype, .shape = shape, .placements = placements, .role = Role::input});
}

TensorId Builder::parameter(std::string name, Shape shape, float init_mean, float init_std, bool decay) {
  const TensorId id = add_tensor({.name = name, .dtype = DType::f32, .shape = shape, .role = Role::parameter, .state = true});
  program_.parameters.push_back(
      {.tensor = id, .name = std::move(name), .decay = decay, .init_mean = init_mean, .init_std = init_std});
  return id;
}

TensorId Builder::constant(std::string name, Shape shape, std::function<void(std::span<float>)> fill) {
  const TensorId id =
      add_tensor({.name = std::move(name), .dtype = DType::f32, .shape = shape, .role = Role::input, .state = true});
  program_.constants.push_back({id, std::move(fill)});
  return id;
}

TensorId Builder::state(std::string name, DType dtype, Shape shape, Placements placements) {
  return add_tensor({.name = std::move(name),
                     .dtype = dtype,
                     .shape = shape,
                     .placements = placements,
                     .role = Role::optimizer_state,
                     .state = true});
}

TensorId Builder::storage(std::string name, std::int64_t bytes, Role role) {
  return add_tensor({.name = std::move(name), .dtype = DType::u8, .shape = {bytes}, .role = role});
}

std::vector<TensorId> Builder::emit(std::string_view op_name, std::vector<TensorId> inputs, Attributes attributes,
                                    std::vector<std::string> names) {
  const Op& op = registry().get(op_name);
  const Types input_types = types_of(program_, inputs);
  const Types output_types = op.infer(input_types, attributes);

  std::vector<Placements> output_placements(output_types.size());
  for (int axis = 0; axis < program_.mesh.axes(); ++axis) {
    AxisSharding rule{placements_along(program_, inputs, axis), {}};
    op.shard(rule, input_types, attributes);
    rule.outputs.resize(output_types.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] != no_tensor) inputs[i] = reshard(inputs[i], axis, rule.inputs[i]);
    }
    for (std::size_t i = 0; i < output_types.size(); ++i) output_placements[i][axis] = rule.outputs[i];
  }

  Instruction instruction{.op = &op, .inputs = std::move(inputs), .attributes = std::move(attributes), .tag = tag};
  if (op.is_collective()) instruction.queue = Queue::communication(static_cast<int>(instruction.attributes.integer("axis")));
  for (std::size_t i = 0; i < output_types.size(); ++i) {
    if (!output_types[i]) {
      instruction.outputs.push_back(no_tensor);
      continue;
    }
    Tensor tensor{.dtype = output_types[i]->dtype, .shape = output_types[i]->shape, .placements = output_placements[i]};
    tensor.name = i < names.size() && !names[i].empty() ? names[i] : std::string(op_name);
    const int updated = op.updates_in_place(static_cast<int>(i));
    if (updated >= 0 && static_cast<std::size_t>(updated) < instruction.inputs.size() &&
        instruction.inputs[updated] != no_tensor) {
      const Tensor& old = program_[instruction.inputs[static_cast<std::size_t>(updated)]];
      tensor.storage = old.storage;
      tensor.offset = old.offset;
      tensor.role = old.role;
      tensor.space = old.space;
      tensor.state = old.state;
    }
    instruction.outputs.push_back(add_tensor(std::move(tensor)));
  }
  program_.instructions.push_back(std::move(instruction));
  return program_.instructions.back().outputs;
}

TensorId Builder::emit_one(std::string_view op, std::vector<TensorId> inputs, Attributes attributes, std::string name) {
  return emit(op, std::move(inputs), std::move(attributes), {std::move(name)}).at(0);
}

TensorId Builder::reshard(TensorId tensor, int axis, Placement placement) {
  if (program_[tensor].placements[axis] == placement) return tensor;
  for (const Reshard& known : reshards_) {
    if (known.from == tensor && known.axis == axis && known.placement == placement) return known.to;
  }
  const TensorId to = emit_reshard(tensor, axis, placement);
  constexpr std::size_t remembered = 16;  // consumers that share a moved input stand close together
  if (reshards_.size() == remembered) reshards_.erase(reshards_.begin());
  reshards_.push_back({tensor, axis, placement, to});
  return to;
}

std::vector<TensorId> Builder::all_reduce(std::vector<TensorId> tensors, int axis) {
  std::vector<std::string> names;
  for (TensorId tensor : tensors) {
    if (!program_[tensor].placements[axis].is_partial()) {
      throw ProgramError("all_reduce of '" + program_[tensor].name + "', which is not partial on axis '" +
                         program_.mesh.axis(axis).name + "'");
    }
    names.push_back(program_[tensor].name);
  }
  std::vector<TensorId> reduced = emit("all_reduce", std::move(tensors), {{"axis", std::int64_t{axis}}}, std::move(names));
  for (TensorId tensor : reduced) program_[tensor].placements[axis] = Placement::replicate();
  return reduced;
}

TensorId Builder::emit_reshard(TensorId tensor, int axis, Placement to) {
  const Placement from = program_[tensor].placements[axis];
  const char* op = nullptr;
  Attributes attributes{{"axis", std::int64_t{axis}}};
  if (from.is_partial() && to.is_replicate()) {
    op = "all_reduce";
  } else if (from.is_partial() && to.is_shard()) {
    op = "reduce_scatter";
    attributes.set("dim", std::int64_t{to.dim()});
  } else if (from.is_shard() && to.is_replicate()) {
    op = "all_gather";
    attributes.set("dim", std::int64_t{from.dim()});
  } else if (from.is_replicate() && to.is_shard()) {
    op = "slice";
    attributes.set("dim", std::int64_t{to.dim()});
  } else if (from.is_shard() && to.is_shard()) {
    return reshard(reshard(tensor, axis, Placement::replicate()), axis, to);
  } else {
    throw ProgramError("tensor '" + program_[tensor].name + "' " + program_[tensor].placements.text(program_.mesh) +
                       " is needed as a partial sum on axis '" + program_.mesh.axis(axis).name +
                       "'; nothing makes a partial sum");
  }
  const TensorId result = emit_one(op, {tensor}, std::move(attributes), program_[tensor].name);
  program_[result].placements[axis] = to;
  program_.local(result);  // throws where the shape does not divide
  return result;
}

}  // namespace consist
