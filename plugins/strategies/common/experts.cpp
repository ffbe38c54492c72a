#include "plugins/strategies/common/experts.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "consist/error.h"
#include "consist/op.h"
#include "consist/room.h"

namespace consist::strategies {
namespace {

void divide_weights(Tensor& weights, const Mesh& mesh, AxisSet axes, const std::string& who, const std::string& otherwise) {
  if (weights.role != Role::parameter)
    throw UsageError(who + ": '" + weights.name + "' are weights of experts that another strategy has changed");
  AxisSet all = axes;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (weights.placements[axis].is_shard(0)) all |= axis;
  }
  const std::int64_t experts = weights.shape[0], ranks = mesh.size_of(all);
  if (experts % ranks != 0) {
    throw UsageError(who + "=" + std::to_string(mesh.size_of(axes)) + ": the model has " + std::to_string(experts) +
                     " experts, which " + std::to_string(ranks) + " ranks" +
                     (all == axes ? "" : " (of the axes " + mesh.text(all) + ")") + " cannot share equally; choose a size for " +
                     who + " that divides them" + otherwise);
  }
  weights.placements.set(axes, Placement::shard(0));
}

/// Rows over all ranks where `choices` fall on experts. With a capacity as large as there are ranks each has room for all.
std::int64_t room_of(double capacity, std::int64_t choices, const Mesh& mesh) {
  const double useful = std::min(capacity, static_cast<double>(mesh.ranks()));
  return rounded_room(static_cast<std::int64_t>(std::ceil(useful * static_cast<double>(choices))), mesh.ranks());
}

}  // namespace

bool divide_experts(Program& forward, AxisSet axes, std::optional<double> capacity, const char* who, const char* otherwise) {
  bool any = false;
  for (Instruction& i : forward.instructions) {
    if (const int weights = i.op->expert_weights(); weights >= 0)
      divide_weights(forward[i.inputs[static_cast<std::size_t>(weights)]], forward.mesh, axes, who, otherwise);
    if (!i.op->dispatches_tokens() || i.attributes.has("ranks"))
      continue;  // which sends tokens along the axes of whoever put it there
    any = true;
    const bool has_room = i.attributes.has("axis");
    if (has_room && capacity) {
      throw UsageError("--" + std::string(who) + ".capacity is given, but another strategy divides experts as well (over " +
                       forward.mesh.text(i.attributes.axes("axis")) +
                       ") and says how much room they have; state the capacity there");
    }
    i.attributes.set("axis", has_room ? i.attributes.axes("axis") | axes : axes);
    if (!has_room)
      i.attributes.set("rows", room_of(capacity.value_or(usual_capacity), i.attributes.integer("rows"), forward.mesh));
  }
  return any;
}

}  // namespace consist::strategies
