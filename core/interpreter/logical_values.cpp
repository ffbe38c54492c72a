#include "core/interpreter/logical_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "consist/error.h"
#include "core/checkpoint/tensor_parts.h"
#include "core/program/local_ranges.h"
#include "core/state/training_state.h"

namespace consist::interpreter {

using reference::Value;

TensorId find(const Program& program, const std::string& name, Role role) {
  for (std::size_t t = program.tensors.size(); t-- > 0;) {
    if (program.tensors[t].role == role && program.tensors[t].name == name) return static_cast<TensorId>(t);
  }
  return no_tensor;
}

void write_logical(Arena& arena, TensorId tensor, const std::vector<float>& logical) {
  const Program& program = arena.planned().program;
  const Tensor& t = program[tensor];
  for (const LocalRange& range : local_ranges(t.shape, t.placements, program.mesh, program.rank)) {
    const auto begin = logical.begin() + range.logical;
    arena.write_elements(tensor, range.local, std::vector<double>(begin, begin + range.count));
  }
}

void write_zero_states(Arena& arena) {
  const Program& program = arena.planned().program;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const auto id = static_cast<TensorId>(t);
    if (program[id].state && program[id].role == Role::optimizer_state && program[id].dtype != DType::u8)
      arena.write(id, reference::zeros(DType::f32, program.part(id).shape));
  }
}

void write_constants(Arena& arena) {
  const Program& program = arena.planned().program;
  for (const Constant& constant : program.constants) {
    std::vector<float> values(static_cast<std::size_t>(program[constant.tensor].shape.elements()));
    constant.fill(values);
    write_logical(arena, constant.tensor, values);
  }
}

void Assembly::add(const Program& program, const std::string& name, TensorId tensor, const std::vector<double>& local) {
  const Tensor& t = program[tensor];
  std::vector<double>& logical =
      values_.try_emplace(name, static_cast<std::size_t>(t.shape.elements()), std::numeric_limits<double>::quiet_NaN())
          .first->second;
  for (const LocalRange& range : local_ranges(t.shape, t.placements, program.mesh, program.rank)) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      double& known = logical.at(static_cast<std::size_t>(range.logical + i));
      const double here = local.at(static_cast<std::size_t>(range.local + i));
      if (std::isnan(known)) known = here;
      if (std::abs(known - here) > 1e-9 * std::max(1.0, std::abs(known)))
        throw ProgramError("rank " + std::to_string(program.rank) + " ends with " + std::to_string(here) + " in element " +
                           std::to_string(range.logical + i) + " of '" + name + "', another rank with " + std::to_string(known));
    }
  }
}

LogicalValues Assembly::finish() {
  for (const auto& [name, values] : values_) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) throw ProgramError("no rank holds element " + std::to_string(i) + " of '" + name + "'");
    }
  }
  return std::move(values_);
}

LogicalValues states_of(std::span<const Arena> ranks) {
  Assembly assembly;
  for (const Arena& arena : ranks) {
    const Program& program = arena.planned().program;
    const auto add = [&](const std::string& name, TensorId tensor) {
      if (tensor != no_tensor) assembly.add(program, name, tensor, arena.read(tensor).data);
    };
    for (const Parameter& p : program.parameters) {
      // Weights that forward reads and those that the optimizer keeps are the same, up to rounding.
      if (p.master == no_tensor || !arena.rounds()) add(p.name, p.tensor);
      add(p.name, p.master);
      for (const ParameterState& state : p.states) add(p.name + "." + state.name, state.tensor);
    }
  }
  return assembly.finish();
}

namespace {

std::string own_name(int rank, const std::string& name) {
  return std::to_string(rank) + " " + name;
}

/// Adds what a checkpoint of this rank would hold of `value`.
void save_value(SavedValues& saved, const Arena& arena, const TrainingState::Value& value) {
  const Program& program = arena.planned().program;
  const Tensor& t = program[value.tensor];
  const Value local = arena.read(value.tensor);
  if (value.kind == StateKind::per_rank) {
    saved.own[own_name(program.rank, value.name)] = local.data;
    return;
  }
  if (!value.saved_here || !owns_part(t.placements, program.mesh, program.rank, program.stage_axis)) return;
  std::vector<double>& logical =
      saved.values.try_emplace(value.name, static_cast<std::size_t>(t.shape.elements()), std::numeric_limits<double>::quiet_NaN())
          .first->second;
  for (const LocalRange& range : local_ranges(t.shape, t.placements, program.mesh, program.rank)) {
    const auto from = local.data.begin() + range.local;
    std::copy(from, from + range.count, logical.begin() + range.logical);
  }
}

/// Gives this rank its part of `value`, and the parameter that forward reads where the value is its master.
void resume_value(Arena& arena, const TrainingState::Value& value, const SavedValues& saved) {
  const Program& program = arena.planned().program;
  if (value.kind == StateKind::per_rank) {
    const auto own = saved.own.find(own_name(program.rank, value.name));
    if (own == saved.own.end() || saved.mesh != program.mesh)
      throw UsageError("the state '" + value.name + "' is each rank's own: only the layout that saved it resumes it");
    return arena.write(value.tensor, {DType::f32, {}, own->second});
  }
  const auto found = saved.values.find(value.name);
  if (found == saved.values.end()) {
    if (value.kind != StateKind::discardable) throw ProgramError("the checkpoint has no '" + value.name + "'");
    return arena.write(value.tensor, reference::zeros(DType::f32, program.part(value.tensor).shape));
  }
  std::vector<TensorId> targets{value.tensor};
  for (const Parameter& p : program.parameters) {
    if (p.master == value.tensor) targets.push_back(p.tensor);
  }
  for (const TensorId target : targets) {
    const Tensor& t = program[target];
    for (const LocalRange& range : local_ranges(t.shape, t.placements, program.mesh, program.rank)) {
      const auto begin = found->second.begin() + range.logical;
      arena.write_elements(target, range.local, {begin, begin + range.count});
    }
  }
}

}  // namespace

SavedValues saved_values(std::span<const Arena> ranks, int steps) {
  SavedValues saved{{}, {}, ranks.front().planned().program.mesh, steps};
  for (const Arena& arena : ranks) {
    const Program& program = arena.planned().program;
    for (const TrainingState::Value& value : TrainingState::values_of(program, program.rank)) save_value(saved, arena, value);
  }
  for (const auto& [name, values] : saved.values) {
    const auto missing = std::find_if(values.begin(), values.end(), [](double v) { return std::isnan(v); });
    if (missing != values.end())
      throw ProgramError("no rank saves element " + std::to_string(missing - values.begin()) + " of '" + name + "'");
  }
  return saved;
}

void resume(std::span<Arena> ranks, const SavedValues& saved) {
  for (Arena& arena : ranks) {
    const Program& program = arena.planned().program;
    write_zero_states(arena);  // those that no checkpoint holds
    for (const TrainingState::Value& value : TrainingState::values_of(program, program.rank)) resume_value(arena, value, saved);
    write_constants(arena);
  }
}

}  // namespace consist::interpreter
