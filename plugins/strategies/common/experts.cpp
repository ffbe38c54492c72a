#include "plugins/strategies/common/experts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "consist/error.h"
#include "consist/op.h"
#include "consist/pass.h"
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

/// Capacity in rows over all ranks for `choices` of experts. With a factor of the number of ranks, each can take all.
std::int64_t room_of(double capacity, std::int64_t choices, const Mesh& mesh) {
  const double useful = std::min(capacity, static_cast<double>(mesh.ranks()));
  return rounded_room(static_cast<std::int64_t>(std::ceil(useful * static_cast<double>(choices))), mesh.ranks());
}

/// Attribute of ops that dispatch tokens, until their capacity is set: the factor that a strategy of one rank was given.
constexpr const char* stated = "capacity";

void forget_capacity(Attributes& attributes) {
  Attributes others;
  for (const auto& [name, value] : attributes.all()) {
    if (name != stated) others.set(name, value);
  }
  attributes = std::move(others);
}

void give_room(Attributes& attributes, AxisSet axes, std::optional<double> capacity, const Mesh& mesh) {
  if (axes.empty()) {
    if (capacity) attributes.set(stated, *capacity);
    return;
  }
  const bool has_room = attributes.has("axis");
  attributes.set("axis", has_room ? attributes.axes("axis") | axes : axes);
  if (has_room) return;
  const double multiple = attributes.real_or(stated, capacity.value_or(usual_capacity));
  attributes.set("rows", room_of(multiple, attributes.integer("rows"), mesh));
  forget_capacity(attributes);
}

/// The strategy that has set the capacity before, behind "another strategy"; empty if none has.
std::string said_by_others(const Attributes& attributes, const Mesh& mesh) {
  if (attributes.has("axis")) return " divides experts as well (over " + mesh.text(attributes.axes("axis")) + ") and says how much room they have";
  return attributes.has(stated) ? ", of one rank, says how much room experts have" : "";
}

}  // namespace

std::optional<double> capacity_of(const Options& options) {
  if (!options.has(capacity_option.name)) return std::nullopt;
  return options.real(capacity_option.name);
}

OnOneRank on_one_rank(std::optional<double> capacity) {
  return capacity.value_or(usual_capacity) == usual_capacity ? OnOneRank::changes_nothing : OnOneRank::is_called;
}

bool divide_experts(Program& forward, AxisSet axes, std::optional<double> capacity, const char* who, const char* otherwise) {
  bool any = false;
  for (Instruction& i : forward.instructions) {
    if (const int weights = i.op->expert_weights(); weights >= 0 && !axes.empty())
      divide_weights(forward[i.inputs[static_cast<std::size_t>(weights)]], forward.mesh, axes, who, otherwise);
    if (!i.op->dispatches_tokens() || i.attributes.has("ranks"))
      continue;  // which sends tokens along the axes of the strategy that inserted it
    any = true;
    if (const std::string others = said_by_others(i.attributes, forward.mesh); capacity && !others.empty()) {
      throw UsageError("--" + std::string(who) + ".capacity is given, but another strategy" + others + "; state the capacity there");
    }
    give_room(i.attributes, axes, capacity, forward.mesh);
  }
  return any;
}

void add_pass_that_forgets_room(PassList& passes, const char* who) {
  passes.add(PassPoint::forward, {std::string(who) + ".room", [](Program& forward, PassContext& /*context*/) {
                                    for (Instruction& i : forward.instructions) {
                                      if (i.attributes.has(stated) && i.op->dispatches_tokens()) forget_capacity(i.attributes);
                                    }
                                  }});
}

}  // namespace consist::strategies
