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

/// Attribute "dim" of collectives over flat parts.
constexpr std::int64_t flat_dim = -1;

bool is_part(Placement placement) {
  return placement.is_shard() || placement.is_flat();
}
std::int64_t dim_of(Placement part) {
  return part.is_flat() ? flat_dim : part.dim();
}

/// When an input is moved along an axis, beside its moves along other axes.
enum class Turn { from_flat, others, to_flat };
Turn turn_of(Placement from, Placement to) {
  return from.is_flat() ? Turn::from_flat : to.is_flat() ? Turn::to_flat : Turn::others;
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

TensorId Builder::state(std::string name, DType dtype, Shape shape, Placements placements, StateKind kind) {
  return add_tensor({.name = std::move(name),
                     .dtype = dtype,
                     .shape = shape,
                     .placements = placements,
                     .role = Role::optimizer_state,
                     .state = true,
                     .state_kind = kind});
}

TensorId Builder::storage(std::string name, std::int64_t bytes, Role role) {
  return add_tensor({.name = std::move(name), .dtype = DType::u8, .shape = {bytes}, .role = role});
}

std::vector<TensorId> Builder::emit(std::string_view op_name, std::vector<TensorId> inputs, Attributes attributes,
                                    std::vector<std::string> names) {
  const Op& op = registry().get(op_name);
  const Types input_types = types_of(program_, inputs);
  const Types output_types = op.infer(input_types, attributes);

  std::vector<Placements> output_placements(output_types.size()), wanted(inputs.size());
  for (int axis = 0; axis < program_.mesh.axes(); ++axis) {
    AxisSharding rule{placements_along(program_, inputs, axis), {}, axis};
    op.shard(rule, input_types, attributes);
    rule.outputs.resize(output_types.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) wanted[i][axis] = rule.inputs[i];
    for (std::size_t i = 0; i < output_types.size(); ++i) output_placements[i][axis] = rule.outputs[i];
  }
  // Flat parts are cut from what the other axes leave: a gather undoes them first, a slice makes them last.
  for (const Turn turn : {Turn::from_flat, Turn::others, Turn::to_flat}) {
    for (int axis = 0; axis < program_.mesh.axes(); ++axis) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] == no_tensor) continue;
        const Placement from = program_[inputs[i]].placements[axis], to = wanted[i][axis];
        if (from != to && turn_of(from, to) == turn) inputs[i] = reshard(inputs[i], axis, to);
      }
    }
  }

  Instruction instruction{.op = &op, .inputs = std::move(inputs), .attributes = std::move(attributes), .tag = tag};
  if (op.is_collective()) {
    instruction.queue = Queue::communication(static_cast<int>(instruction.attributes.integer("axis")),
                                             static_cast<Lane>(instruction.attributes.integer_or("lane", 0)));
  }
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
  const TensorId to = reshard(std::vector<TensorId>{tensor}, axis, placement)[0];
  // Consumers that share a moved input stand close together; only states are wanted from far away (a tied embedding), and their
  // gradients must come together.
  constexpr std::ptrdiff_t remembered = 16;
  const auto passing = [&](const Reshard& known) { return !program_[known.from].state; };
  if (std::count_if(reshards_.begin(), reshards_.end(), passing) == remembered)
    reshards_.erase(std::find_if(reshards_.begin(), reshards_.end(), passing));
  reshards_.push_back({tensor, axis, placement, to});
  return to;
}

std::vector<TensorId> Builder::reshard(std::vector<TensorId> tensors, int axis, Placement to) {
  if (tensors.empty()) return {};
  const Placement from = program_[tensors[0]].placements[axis];
  std::vector<std::string> names;
  for (TensorId tensor : tensors) {
    if (program_[tensor].placements[axis] != from) {
      throw ProgramError("'" + program_[tensors[0]].name + "' and '" + program_[tensor].name + "' lie differently on axis '" +
                         program_.mesh.axis(axis).name + "'; one collective cannot move both");
    }
    const int flat = program_[tensor].placements.flat_axis();
    if (flat >= 0 && flat != axis && (is_part(from) || is_part(to))) {
      throw ProgramError("'" + program_[tensor].name + "' " + program_[tensor].placements.text(program_.mesh) +
                         " is in flat parts, which an axis cannot cut or gather before they are whole");
    }
    names.push_back(program_[tensor].name);
  }
  if (from == to) return tensors;
  const char* op = nullptr;
  std::int64_t dim = flat_dim;
  if (from.is_partial() && to.is_replicate()) {
    op = "all_reduce";
  } else if (from.is_partial() && is_part(to)) {
    op = "reduce_scatter";
    dim = dim_of(to);
  } else if (is_part(from) && to.is_replicate()) {
    op = "all_gather";
    dim = dim_of(from);
  } else if (from.is_replicate() && is_part(to)) {
    op = "slice";
    dim = dim_of(to);
  } else if (is_part(from) && is_part(to)) {
    return reshard(reshard(std::move(tensors), axis, Placement::replicate()), axis, to);
  } else {
    throw ProgramError("tensor '" + program_[tensors[0]].name + "' " + program_[tensors[0]].placements.text(program_.mesh) +
                       " is needed as a partial sum on axis '" + program_.mesh.axis(axis).name +
                       "'; nothing makes a partial sum");
  }
  Attributes attributes{{"axis", std::int64_t{axis}}};
  if (!from.is_partial() || !to.is_replicate()) attributes.set("dim", dim);
  std::vector<TensorId> results = emit(op, std::move(tensors), std::move(attributes), std::move(names));
  for (TensorId result : results) {
    program_[result].placements[axis] = to;
    program_.local(result);  // throws where the shape does not divide
  }
  return results;
}

std::vector<TensorId> Builder::all_reduce(std::vector<TensorId> tensors, int axis) {
  for (TensorId tensor : tensors) {
    if (!program_[tensor].placements[axis].is_partial()) {
      throw ProgramError("all_reduce of '" + program_[tensor].name + "', which is not partial on axis '" +
                         program_.mesh.axis(axis).name + "'");
    }
  }
  return reshard(std::move(tensors), axis, Placement::replicate());
}

}  // namespace consist
