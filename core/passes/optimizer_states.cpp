#include "core/passes/optimizer_states.h"

#include <algorithm>
#include <set>
#include <vector>

#include "consist/error.h"

namespace consist {
namespace {

std::int64_t divided_up(std::int64_t count, std::int64_t parts) {
  return (count + parts - 1) / parts;
}

Shape without_dimension(const Shape& shape, int dropped) {
  Shape rest;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    if (dim != dropped) rest.push_back(shape[dim]);
  }
  return rest;
}

/// The dimension that a state of rows or columns lacks.
int lacking_dimension(StateShape shape, int rank) {
  return shape == StateShape::rows ? rank - 1 : rank - 2;
}

Placements of_vectors(StateShape shape, const Tensor& gradient, const Mesh& mesh) {
  const int lacking = lacking_dimension(shape, gradient.shape.rank());
  Placements placements;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const Placement of_gradient = gradient.placements[axis];
    if (!of_gradient.is_shard() || of_gradient.is_shard(lacking)) continue;  // replicated: ranks sum over what they hold
    placements[axis] = Placement::shard(of_gradient.dim() - (of_gradient.dim() > lacking ? 1 : 0));
  }
  return placements;
}

/// The shape of what the axes that shard leave of it.
Shape sharded(const Shape& shape, const Placements& placements, const Mesh& mesh) {
  Placements shards = placements;
  shards.set(placements.flat_axes(), Placement::replicate());
  return local_shape(shape, shards, mesh);
}

/// The axes of the mesh along which parts of the gradient end within a block of the state; none if no part does.
AxisSet axes_within_blocks(const OptimizerState& state, const Tensor& gradient, const Mesh& mesh) {
  const int last = gradient.shape.rank() - 1;
  const bool in_rows = gradient.shape.rank() > 0 && gradient.shape.last() % state.block == 0;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const Placement placement = gradient.placements[axis];
    if (!placement.is_shard()) continue;
    const std::int64_t elements = sharded(gradient.shape, gradient.placements, mesh).elements();
    const bool divides = in_rows ? !placement.is_shard(last) || (gradient.shape.last() / mesh.size_of(axis)) % state.block == 0
                                 : placement.is_shard(0) && elements % state.block == 0;
    if (!divides) return axis;
  }
  const AxisSet flat = gradient.placements.flat_axes();
  if (mesh.size_of(flat) == 1) return {};
  const std::int64_t elements = sharded(gradient.shape, gradient.placements, mesh).elements(), ranks = mesh.size_of(flat),
                     each = divided_up(elements, ranks);
  const bool divides = each % state.block == 0 && divided_up(divided_up(elements, state.block), ranks) == each / state.block;
  return divides ? AxisSet() : flat;
}

std::string strategies_of(AxisSet axes, const Mesh& mesh, const OptimizerNames& names) {
  std::string text;
  std::set<std::string> known;
  for (const int axis : axes) {
    const std::string name = names.strategy ? "--strategy " + names.strategy(axis) : "axis '" + mesh.axis(axis).name + "'";
    if (known.insert(name).second) text += (text.empty() ? "" : " and ") + name;
  }
  return text;
}

}  // namespace

Shape shape_of(const OptimizerState& state, const Shape& shape) {
  switch (state.shape) {
    case StateShape::like_parameter:
      return shape;
    case StateShape::rows:
    case StateShape::columns:
      if (shape.rank() < 2) {
        throw ProgramError("the state '" + state.name + "' of " + (state.shape == StateShape::rows ? "rows" : "columns") +
                           " is asked for a parameter " + shape.text() + ", which is no matrix");
      }
      return without_dimension(shape, lacking_dimension(state.shape, shape.rank()));
    case StateShape::blocks: {
      if (state.block < 1)
        throw ProgramError("the state '" + state.name + "' has blocks of " + std::to_string(state.block) +
                           " elements; at least 1");
      if (shape.rank() == 0 || shape.last() % state.block != 0) return {divided_up(shape.elements(), state.block)};
      Shape blocks = shape;
      blocks[shape.rank() - 1] /= state.block;
      return blocks;
    }
    case StateShape::scalar:
      return {};
  }
  throw ProgramError("the state '" + state.name + "' has a shape that is none");
}

Placements placements_of(const OptimizerState& state, const std::string& parameter, const Tensor& gradient, const Mesh& mesh,
                         const OptimizerNames& names) {
  switch (state.shape) {
    case StateShape::like_parameter:
      return gradient.placements;
    case StateShape::rows:
    case StateShape::columns:
      return of_vectors(state.shape, gradient, mesh);
    case StateShape::scalar:
      return {};
    case StateShape::blocks:
      break;
  }
  if (const AxisSet axes = axes_within_blocks(state, gradient, mesh); !axes.empty()) {
    throw UsageError(
        names.optimizer + " with " + strategies_of(axes, mesh, names) + ": the state '" + state.name + "' has one value for " +
        std::to_string(state.block) + " neighbouring elements of '" + parameter + "' " + gradient.shape.text() + ", and the " +
        std::to_string(mesh.size_of(axes)) +
        " ranks' parts of it end within such a block, of which each rank would know a part alone; use another number of "
        "ranks, a block that divides the parts, or another strategy");
  }
  return gradient.placements;
}

void check_states(const std::vector<OptimizerState>& states, const std::vector<double>& evaluated, const std::string& parameter) {
  std::set<std::string> names;
  for (const OptimizerState& state : states) {
    if (state.name.empty() || state.name == "master" || !names.insert(state.name).second)
      throw ProgramError("the optimizer's states() gives '" + parameter + "' a state '" + state.name +
                         "', which must be neither empty, nor \"master\", nor there twice");
    if (state.dtype == DType::i32) throw ProgramError("the state '" + state.name + "' of '" + parameter + "' cannot be i32");
  }
  if (evaluated.empty()) return;
  if (evaluated.size() != states.size()) {
    throw ProgramError("the optimizer's evaluated() gives '" + parameter + "' " + std::to_string(evaluated.size()) +
                       " factors, one for each of its " + std::to_string(states.size()) + " states must be there");
  }
  for (std::size_t k = 0; k < states.size(); ++k) {
    const bool is_weight = states[k].shape == StateShape::like_parameter &&
                           (!states[k].dtype || states[k].dtype == DType::f32 || states[k].dtype == DType::bf16);
    if (evaluated[k] != 0 && !is_weight)
      throw ProgramError("the optimizer's evaluated() adds the state '" + states[k].name + "' to '" + parameter +
                         "', which must be like the parameter, in f32 or bf16");
  }
}

}  // namespace consist
