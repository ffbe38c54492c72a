#include "consist/builder.h"

#include <algorithm>
#include <utility>

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

bool is_part(Placement placement) {
  return placement.is_shard() || placement.is_flat();
}

/// The axes along which `tensor` moves to its placement in `to` together with `axis`: parts that nest move at once.
AxisSet moving_with(const Program& program, TensorId tensor, int axis, const Placements& to) {
  const Placements& from = program[tensor].placements;
  AxisSet axes = axis;
  if (from[axis] == to[axis] || (!is_part(from[axis]) && !is_part(to[axis]))) return axes;
  for (int other = axis + 1; other < program.mesh.axes(); ++other) {
    if (from[other] == from[axis] && to[other] == to[axis]) axes |= other;
  }
  return axes;
}

/// Attribute "dim" of collectives over flat parts.
constexpr std::int64_t flat_dim = -1;

std::int64_t dim_of(Placement part) {
  return part.is_flat() ? flat_dim : part.dim();
}

/// When a tensor is moved along an axis, beside its moves along other axes. Flat parts are cut from what the other axes leave: a
/// gather undoes them first, a slice makes them last. Sums are scattered first along the innermost axis, so that outer ones,
/// which join nodes, move parts; gathers go in the order of the mesh, so that these undo those.
enum class Turn { from_flat, scatter, others, to_flat };
constexpr Turn turns[] = {Turn::from_flat, Turn::scatter, Turn::others, Turn::to_flat};

/// True if the partial sum `tensor` along `axis` becomes a shard of a dimension that no other axis divides or gathers meanwhile.
bool is_scattered_alone(const Program& program, TensorId tensor, int axis, const Placements& to) {
  const Placements& from = program[tensor].placements;
  if (!from[axis].is_partial() || !to[axis].is_shard()) return false;
  for (int other = 0; other < program.mesh.axes(); ++other) {
    if (other != axis && from[other] != to[other] && (from[other] == to[axis] || to[other] == to[axis])) return false;
  }
  return true;
}

Turn turn_of(const Program& program, TensorId tensor, int axis, const Placements& to) {
  if (program[tensor].placements[axis].is_flat()) return Turn::from_flat;
  if (to[axis].is_flat()) return Turn::to_flat;
  return is_scattered_alone(program, tensor, axis, to) ? Turn::scatter : Turn::others;
}

/// The tensor as it lies in `to` along `axis` and whatever moves with that, if it is the turn of that.
TensorId moved(Builder& builder, TensorId tensor, int axis, const Placements& to, Turn turn) {
  const Program& program = builder.program();
  if (program[tensor].placements[axis] == to[axis]) return tensor;
  const Turn own = turn_of(program, tensor, axis, to);
  // A sum that was not alone before another axis moved is scattered behind that, or nothing would move it.
  const bool is_late = turn == Turn::others && own == Turn::scatter;
  if (own != turn && !is_late) return tensor;
  return builder.reshard(tensor, moving_with(program, tensor, axis, to), to[axis]);
}

/// True if `tensor` is whole or a shard along an axis along which a summand is `needed`: nothing makes summands of it.
bool is_no_summand(const Program& program, TensorId tensor, const Placements& needed) {
  for (int axis = 0; axis < program.mesh.axes(); ++axis) {
    if (needed[axis].is_partial() && !program[tensor].placements[axis].is_partial()) return true;
  }
  return false;
}

/// Sums so far, each with the output that is added to it, of which ranks hold no summands as the op would make them; taken out of
/// `inputs`. What the op makes is added behind them. So come a gradient of all tokens, and one of those of each rank, together.
std::vector<std::pair<std::size_t, TensorId>> take_sums(const Program& program, const Op& op, const Types& outputs,
                                                        const std::vector<Placements>& needed, std::vector<TensorId>& inputs) {
  std::vector<std::pair<std::size_t, TensorId>> sums;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const int slot = outputs[k] ? op.updates_in_place(static_cast<int>(k)) : -1;
    if (slot < 0 || static_cast<std::size_t>(slot) >= inputs.size()) continue;
    TensorId& sum = inputs[static_cast<std::size_t>(slot)];
    if (sum == no_tensor || program[sum].state || !is_no_summand(program, sum, needed[static_cast<std::size_t>(slot)])) continue;
    sums.emplace_back(k, std::exchange(sum, no_tensor));
  }
  return sums;
}

/// The input that an instruction's output takes the place of; no_tensor if there is none.
TensorId updated_by(const Instruction& instruction, std::size_t output) {
  const int slot = instruction.op->updates_in_place(static_cast<int>(output));
  if (slot < 0 || static_cast<std::size_t>(slot) >= instruction.inputs.size()) return no_tensor;
  return instruction.inputs[static_cast<std::size_t>(slot)];
}

void take_storage(Tensor& tensor, const Tensor& old) {
  tensor.storage = old.storage;
  tensor.offset = old.offset;
  tensor.role = old.role;
  tensor.space = old.space;
  tensor.state = old.state;
}

/// Moves what has its turn along every axis, in the order of that turn.
template <typename Move>
void along_axes(const Program& program, Turn turn, Move move) {
  const int axes = program.mesh.axes();
  for (int k = 0; k < axes; ++k) move(turn == Turn::scatter ? axes - 1 - k : k);
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

TensorId Builder::field(std::string_view name) {
  const auto field = std::find_if(program_.fields.begin(), program_.fields.end(), [&](const Field& f) { return f.name == name; });
  if (field == program_.fields.end()) return no_tensor;
  if (const TensorId known = program_.find(name); known != no_tensor) return known;
  const TensorId ids = program_.find("ids");
  if (ids == no_tensor) throw ProgramError("a field of the dataset is as large as the input 'ids', which the program lacks");
  return input(field->name, field->dtype, program_[ids].shape);
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
  // All-reduces are in place: where a partial sum lay there is its total, even for an op that could have read the partial sum.
  const auto has_total = [&](const Reshard& known, TensorId id) {
    return known.from == id && known.placement.is_replicate() && program_[id].placements.on(known.axes) == Placement::partial();
  };
  for (TensorId& input : inputs) {
    if (input == no_tensor || op.changes_placement()) continue;
    for (const Reshard& known : reshards_) {
      if (has_total(known, input)) input = known.to;  // whose own total, along another axis, comes behind it
    }
  }
  const Types input_types = types_of(program_, inputs);
  const Types output_types = op.infer(input_types, attributes);

  std::vector<Placements> output_placements(output_types.size()), needed(inputs.size());
  for (int axis = 0; axis < program_.mesh.axes(); ++axis) {
    AxisSharding rule{placements_along(program_, inputs, axis), {}, axis};
    op.shard(rule, input_types, attributes);
    rule.outputs.resize(output_types.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) needed[i][axis] = rule.inputs[i];
    for (std::size_t i = 0; i < output_types.size(); ++i) output_placements[i][axis] = rule.outputs[i];
  }
  if (const auto sums = take_sums(program_, op, output_types, needed, inputs); !sums.empty()) {
    std::vector<TensorId> outputs = emit(op_name, std::move(inputs), std::move(attributes), std::move(names));
    for (const auto& [k, sum] : sums) outputs[k] = emit_one("add", {sum, outputs[k]}, {}, program_[outputs[k]].name);
    return outputs;
  }
  for (const Turn turn : turns) {
    along_axes(program_, turn, [&](int axis) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] != no_tensor) inputs[i] = moved(*this, inputs[i], axis, needed[i], turn);
      }
    });
  }

  Instruction instruction{.op = &op, .inputs = std::move(inputs), .attributes = std::move(attributes), .tag = tag};
  if (op.is_collective()) {
    instruction.queue = Queue::communication(instruction.attributes.axes("axis"),
                                             static_cast<Lane>(instruction.attributes.integer_or("lane", 0)));
  }
  for (std::size_t i = 0; i < output_types.size(); ++i) {
    if (!output_types[i]) {
      instruction.outputs.push_back(no_tensor);
      continue;
    }
    Tensor tensor{.dtype = output_types[i]->dtype, .shape = output_types[i]->shape, .placements = output_placements[i]};
    tensor.name = i < names.size() && !names[i].empty() ? names[i] : std::string(op_name);
    if (const TensorId old = updated_by(instruction, i); old != no_tensor) take_storage(tensor, program_[old]);
    instruction.outputs.push_back(add_tensor(std::move(tensor)));
  }
  program_.instructions.push_back(std::move(instruction));
  return program_.instructions.back().outputs;
}

TensorId Builder::emit_one(std::string_view op, std::vector<TensorId> inputs, Attributes attributes, std::string name) {
  return emit(op, std::move(inputs), std::move(attributes), {std::move(name)}).at(0);
}

TensorId Builder::reshard(TensorId tensor, AxisSet axes, Placement placement) {
  if (axes.empty() || program_[tensor].placements.on(axes) == placement) return tensor;
  for (const Reshard& known : reshards_) {
    if (known.from == tensor && known.axes == axes && known.placement == placement) return known.to;
  }
  const TensorId to = reshard(std::vector<TensorId>{tensor}, axes, placement)[0];
  // Consumers that share a moved tensor stand close together; only states (a tied embedding, whose gradients must come together)
  // and inputs (the starts of documents) are wanted from far away.
  constexpr std::ptrdiff_t remembered = 16;
  const auto passing = [&](const Reshard& known) {
    return !program_[known.from].state && program_[known.from].role != Role::input;
  };
  if (std::count_if(reshards_.begin(), reshards_.end(), passing) == remembered)
    reshards_.erase(std::find_if(reshards_.begin(), reshards_.end(), passing));
  reshards_.push_back({tensor, axes, placement, to});
  return to;
}

TensorId Builder::reshard(TensorId tensor, const Placements& to) {
  for (const Turn turn : turns) {
    along_axes(program_, turn, [&](int axis) { tensor = moved(*this, tensor, axis, to, turn); });
  }
  return tensor;
}

namespace {

/// Throws unless the parts of a tensor with these placements that differ along `axes`, where it is `divided`, lie one behind the
/// other.
void check_contiguous(const Program& program, TensorId tensor, AxisSet axes, Placement divided) {
  const Tensor& t = program[tensor];
  for (int other = 0; other < program.mesh.axes(); ++other) {
    if (axes.contains(other)) continue;
    const bool nests = divided.is_flat() ? t.placements[other].is_flat()
                                         : divided.is_shard() && t.placements[other] == divided && other > axes.first();
    if (!nests) continue;
    throw ProgramError("tensor '" + t.name + "' " + t.placements.text(program.mesh) + " cannot be moved over '" +
                       program.mesh.text(axes) + "' alone, since axis '" + program.mesh.axis(other).name +
                       "' divides the same parts; move it over '" + program.mesh.text(axes | other) + "'");
  }
}

}  // namespace

std::vector<TensorId> Builder::reshard(std::vector<TensorId> tensors, AxisSet axes, Placement to) {
  if (tensors.empty()) return {};
  const std::optional<Placement> common = program_[tensors[0]].placements.on(axes);
  if (!common || axes.last() >= program_.mesh.axes()) {
    throw ProgramError("'" + program_[tensors[0]].name + "' " + program_[tensors[0]].placements.text(program_.mesh) +
                       " does not lie alike on all axes of '" + program_.mesh.text(axes) + "'; one collective cannot move it");
  }
  const Placement from = *common;
  std::vector<std::string> names;
  for (TensorId tensor : tensors) {
    if (program_[tensor].placements.on(axes) != from) {
      throw ProgramError("'" + program_[tensors[0]].name + "' and '" + program_[tensor].name + "' lie differently on '" +
                         program_.mesh.text(axes) + "'; one collective cannot move both");
    }
    const bool in_flat_parts = !program_[tensor].placements.flat_axes().without(axes).empty();
    if (in_flat_parts && !from.is_flat() && !to.is_flat() && (is_part(from) || is_part(to))) {
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
  } else if (from.is_shard() && to.is_shard()) {
    op = "all_to_all";
    dim = dim_of(from);
  } else if (is_part(from) && is_part(to)) {
    return reshard(reshard(std::move(tensors), axes, Placement::replicate()), axes, to);
  } else {
    throw ProgramError("tensor '" + program_[tensors[0]].name + "' " + program_[tensors[0]].placements.text(program_.mesh) +
                       " is needed as a partial sum on '" + program_.mesh.text(axes) + "'; nothing makes a partial sum");
  }
  for (TensorId tensor : tensors) {
    check_contiguous(program_, tensor, axes, from);
    check_contiguous(program_, tensor, axes, to);
  }
  Attributes attributes{{"axis", axes}};
  if (!from.is_partial() || !to.is_replicate()) attributes.set("dim", dim);
  if (from.is_shard() && to.is_shard()) attributes.set("to", dim_of(to));
  std::vector<TensorId> results = emit(op, std::move(tensors), std::move(attributes), std::move(names));
  for (TensorId result : results) {
    program_[result].placements.set(axes, to);
    program_.local(result);  // throws where the shape does not divide
  }
  return results;
}

std::vector<TensorId> Builder::all_reduce(std::vector<TensorId> tensors, AxisSet axes) {
  for (TensorId tensor : tensors) {
    if (program_[tensor].placements.on(axes) != Placement::partial()) {
      throw ProgramError("all_reduce of '" + program_[tensor].name + "', which is not partial on '" + program_.mesh.text(axes) +
                         "'");
    }
  }
  return reshard(std::move(tensors), axes, Placement::replicate());
}

}  // namespace consist
