// The values that a rank keeps from step to step, as checkpoints and exports see them.
#include <algorithm>
#include <cstring>
#include <set>

#include "consist/bfloat16.h"
#include "consist/error.h"
#include "core/state/training_state.h"

namespace consist {
namespace {

void decode(const void* bytes, DType dtype, std::span<float> out) {
  if (dtype == DType::f32) {
    std::memcpy(out.data(), bytes, out.size_bytes());
  } else if (dtype == DType::bf16) {
    const auto* in = static_cast<const std::uint16_t*>(bytes);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = from_bfloat16(in[i]);
  } else {
    throw ProgramError("weights cannot be read from " + std::string(name_of(dtype)));
  }
}

using Value = TrainingState::Value;

std::set<TensorId> storages_of_parameters(const Program& program) {
  std::set<TensorId> storages;
  for (const Parameter& p : program.parameters) {
    for (TensorId tensor : {p.tensor, p.master}) {
      if (tensor != no_tensor) storages.insert(program[tensor].storage);
    }
    for (const ParameterState& kept : p.states) storages.insert(program[kept.tensor].storage);
  }
  return storages;
}

Value state_value(const Program& program, TensorId id) {
  const Tensor& state = program[id];
  const Shape shape = state.state_kind == StateKind::per_rank ? program.local(id) : state.shape;
  return {
      .name = state.name, .tensor = id, .dtype = state.dtype, .shape = shape, .of_parameter = false, .kind = state.state_kind};
}

/// States beside the parameters that the program writes.
void add_states(const Program& program, std::vector<Value>& values) {
  const std::set<TensorId> of_parameters = storages_of_parameters(program);
  std::set<TensorId> listed;
  for (const Instruction& i : program.instructions) {
    for (TensorId output : i.outputs) {
      if (output == no_tensor) continue;
      const TensorId id = program[output].storage;
      const Tensor& state = program[id];
      if (!state.state || state.role != Role::optimizer_state || of_parameters.contains(id) || !listed.insert(id).second)
        continue;
      if (Value value = state_value(program, id); value.shape.elements() > 0) values.push_back(std::move(value));
    }
  }
}

}  // namespace

std::vector<TrainingState::Value> TrainingState::values_of(const Program& program, int rank) {
  std::vector<Value> values;
  bool saved_here = true;
  auto add = [&](const std::string& name, TensorId tensor) {
    if (tensor == no_tensor) return;
    const Tensor& t = program[tensor];
    const Shape shape = t.state_kind == StateKind::per_rank ? program.local(tensor) : t.shape;
    values.push_back(
        {.name = name, .tensor = tensor, .dtype = t.dtype, .shape = shape, .saved_here = saved_here, .kind = t.state_kind});
  };
  for (const Parameter& p : program.parameters) {
    saved_here = p.tied_replica < 0 || p.tied_replica > rank;
    add(p.name, p.master == no_tensor ? p.tensor : p.master);
    for (const ParameterState& kept : p.states) add(p.name + "." + kept.name, kept.tensor);
  }
  add_states(program, values);
  return values;
}

std::vector<TrainingState::Value> TrainingState::states_read() const {
  const Program& program = step().program();
  std::vector<Value> states;
  std::set<TensorId> listed = storages_of_parameters(program), of_optimizer;
  for (const Parameter& p : program.parameters) {
    for (const ParameterState& kept : p.states) of_optimizer.insert(kept.tensor);
  }
  for (const Value& value : values_) {
    if (!value.of_parameter || of_optimizer.contains(value.tensor)) states.push_back(value);
    listed.insert(value.tensor);
  }
  for (const Instruction& i : program.instructions) {
    for (TensorId input : i.inputs) {
      if (input == no_tensor) continue;
      const TensorId id = program[input].storage;
      if (!program[id].state || program[id].role != Role::optimizer_state || !listed.insert(id).second) continue;
      if (Value value = state_value(program, id); value.shape.elements() > 0) states.push_back(std::move(value));
    }
  }
  return states;
}

void TrainingState::read_value(const Value& value, std::int64_t first, std::int64_t count, void* out) {
  const auto size = static_cast<std::int64_t>(size_of(value.dtype));
  device_.download(out, step().buffer(value.tensor).as<char>() + first * size, count * size);
}

void TrainingState::read_weights(const std::string& parameter, std::int64_t first, std::span<float> out) {
  const auto value = std::find_if(values_.begin(), values_.end(), [&](const Value& v) { return v.name == parameter; });
  if (value == values_.end()) throw ProgramError("there is no parameter '" + parameter + "'");
  std::vector<char> bytes(out.size() * size_of(value->dtype));
  read_value(*value, first, static_cast<std::int64_t>(out.size()), bytes.data());
  decode(bytes.data(), value->dtype, out);
}

void TrainingState::read_evaluated_weights(const Parameter& parameter, const Optimizer& optimizer, std::int64_t first,
                                           std::span<float> out) {
  read_weights(parameter.name, first, out);
  if (parameter.states.empty()) return;
  const Program& program = step().program();
  const Tensor& weight = program[parameter.master == no_tensor ? parameter.tensor : parameter.master];
  const std::vector<double> factors = optimizer.evaluated(parameter, weight.shape);
  std::vector<float> added(out.size());
  for (std::size_t k = 0; k < factors.size(); ++k) {
    if (factors[k] == 0) continue;
    const ParameterState& state = parameter.states.at(k);
    if (program[state.tensor].placements != weight.placements)
      throw ProgramError("'" + parameter.name + "' and its state '" + state.name +
                         "', which is added to it, are laid out differently");
    read_weights(parameter.name + "." + state.name, first, added);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += static_cast<float>(factors[k]) * added[i];
  }
}

}  // namespace consist
