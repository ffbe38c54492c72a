#include "core/state/owned_tensors.h"

#include <algorithm>
#include <utility>

#include "core/checkpoint/tensor_parts.h"
#include "core/state/resume_checks.h"

namespace consist {

bool is_whole(const Program& program, TensorId tensor) {
  return program.local(tensor) == program[tensor].shape;
}

void OwnedTensors::add(const Program& program, int rank, const std::string& name, TensorId tensor, DType dtype, Read read) {
  const Tensor& t = program[tensor];
  const Shape held = local_part(t.shape, t.placements, program.mesh, rank).shape;
  const bool owns = ranks.empty() ? owns_part(t.placements, program.mesh, rank, program.stage_axis)
                                  : owns_part_among(ranks, t.placements, program.mesh, rank, program.stage_axis);
  if (!owns || (held.elements() == 0 && !is_whole(program, tensor))) return;
  sources.push_back({name, dtype, held, std::move(read)});
  if (!is_whole(program, tensor)) parts[name] = part_text(t.shape, t.placements, program.mesh);
}

void OwnedTensors::add_own(const std::string& name, const TrainingState::Value& value, Read read) {
  sources.push_back({name, value.dtype, value.shape, std::move(read)});
}

std::int64_t OwnedTensors::bytes() const {
  std::int64_t sum = 0;
  for (const TensorSource& source : sources) sum += source.shape.elements() * static_cast<std::int64_t>(source.dtype.bytes());
  return sum;
}

namespace {

/// The rank that trains the same parameter, by the tensors of the parameter and its states.
std::map<TensorId, int> tied_replicas(const Program& program) {
  std::map<TensorId, int> replicas;
  for (const Parameter& p : program.parameters) {
    if (p.tied_replica < 0) continue;
    for (const TensorId tensor : {p.tensor, p.master}) replicas[tensor] = p.tied_replica;
    for (const ParameterState& kept : p.states) replicas[kept.tensor] = p.tied_replica;
  }
  return replicas;
}

}  // namespace

OwnedTensors owned_values(TrainingState& state, int rank, std::span<const int> ranks) {
  OwnedTensors mine;
  mine.ranks = ranks;
  const std::map<TensorId, int> replicas = tied_replicas(state.step().program());
  for (const TrainingState::Value& value : state.values()) {
    const auto replica = replicas.find(value.tensor);
    const bool elsewhere =
        !ranks.empty() && replica != replicas.end() && std::ranges::find(ranks, replica->second) == ranks.end();
    if (!value.saved_here && !elsewhere) continue;
    const std::string name = stored_name(value, rank);
    const auto read = [&state, &value](void* to, std::int64_t first, std::int64_t count) {
      state.read_value(value, first, count, to);
    };
    if (value.kind == StateKind::per_rank) {
      mine.add_own(name, value, read);
    } else {
      mine.add(state.step().program(), rank, name, value.tensor, value.dtype, read);
    }
    if (!value.of_parameter || value.kind == StateKind::per_rank) mine.parts[kind_key(name)] = kind_text(value.kind);
  }
  return mine;
}

}  // namespace consist
