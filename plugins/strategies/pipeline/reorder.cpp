#include "plugins/strategies/pipeline/reorder.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/op.h"
#include "plugins/strategies/pipeline/messages.h"

namespace consist::pipeline {
namespace {

struct Body {
  std::vector<Instruction> receives, instructions;
  std::vector<bool> can_wait;  ///< by instruction: it may run behind what the part sends
};

using Key = std::tuple<Part, int, int>;  // part, micro-batch, stage

/// By instruction: true if only gradients of parameters follow from it, so that only the optimizer waits for it.
std::vector<bool> weight_gradients(const Program& step) {
  std::vector<bool> read(step.tensors.size(), false), read_otherwise(step.tensors.size(), false);
  std::vector<bool> result(step.instructions.size(), false);
  for (std::size_t i = step.instructions.size(); i-- > 0;) {
    const Instruction& instruction = step.instructions[i];
    bool all = instruction.tag.phase == Phase::backward && instruction.op->movement() != Movement::send;
    for (TensorId output : instruction.outputs) {
      if (output == no_tensor) continue;
      const auto at = static_cast<std::size_t>(output);
      all = all && (step[output].role == Role::gradient || (read[at] && !read_otherwise[at]));
    }
    result[i] = all;
    // Gathers, casts and sums before a parameter's gradient belong to it.
    const bool passes_on = all && (instruction.op->is_collective() || instruction.op->is_additive());
    for (TensorId input : instruction.inputs) {
      if (input == no_tensor) continue;
      read[static_cast<std::size_t>(input)] = true;
      if (!passes_on) read_otherwise[static_cast<std::size_t>(input)] = true;
    }
  }
  return result;
}

/// Lets a part send the tensors that others wait for before it computes those that only the optimizer waits for.
void let_send_first(Body& part) {
  std::size_t sent = part.instructions.size();
  while (sent > 0 && part.instructions[sent - 1].op->movement() != Movement::send) --sent;
  std::vector<Instruction> first, later;
  for (std::size_t i = 0; i < part.instructions.size(); ++i)
    (i < sent && !part.can_wait[i] ? first : later).push_back(std::move(part.instructions[i]));
  first.insert(first.end(), std::make_move_iterator(later.begin()), std::make_move_iterator(later.end()));
  part.instructions = std::move(first);
}

/// By micro-batch and stage: true if the backward part sends and has no collectives of other axes, which want work beside them.
std::map<std::pair<int, int>, bool> sending_parts(const Program& step) {
  std::map<std::pair<int, int>, bool> sends;
  for (const Instruction& i : step.instructions) {
    if (i.tag.phase != Phase::backward || !i.op->is_collective() || i.op->movement() == Movement::receive) continue;
    const bool send = i.op->movement() == Movement::send;
    bool& all = sends.try_emplace({i.tag.micro_batch, i.tag.stage}, true).first->second;
    all = all && send;
  }
  return sends;
}

/// Keeps the inputs of weight gradients that run later: a tensor that backward would update in place is made in other memory, if
/// the op can do that, or else copied for them.
class Keeper {
 public:
  Keeper(Program& step, const std::vector<bool>& apart) : step_(step), writes_(step.tensors.size()) {
    for (std::size_t i = 0; i < step.instructions.size(); ++i) {
      for (TensorId output : step.instructions[i].outputs) {
        if (output != no_tensor) writes_[storage(output)].push_back({i, output, !apart[i]});
      }
    }
  }

  bool overwritten(TensorId input, std::size_t index) const {
    if (input == no_tensor || step_[input].role == Role::gradient) return false;
    const std::vector<Write>& writes = writes_[storage(input)];
    return std::any_of(writes.begin(), writes.end(), [&](const Write& write) { return write.stays && write.at > index; });
  }

  /// Lets `instruction`, which was at `index`, find its inputs; instructions that copy are appended to `before`. The instructions
  /// after `index` must still be in the step.
  void keep(Instruction& instruction, std::size_t index, std::vector<Instruction>& before) {
    for (TensorId& input : instruction.inputs) {
      if (overwritten(input, index) && !part_from(input, index)) input = copy_of(input, instruction.tag, before);
    }
  }

 private:
  struct Write {
    std::size_t at;
    TensorId made;
    bool stays;  ///< where it stands: its instruction is no weight gradient
  };

  std::size_t storage(TensorId id) const { return static_cast<std::size_t>(step_[id].storage); }

  /// Gives the first tensor that overwrites `value` after `index`, and all that lie in its place afterwards, a storage of its
  /// own. Returns true if it could.
  bool part_from(TensorId value, std::size_t index) {
    std::vector<Write>& writes = writes_[storage(value)];
    const auto next = std::find_if(writes.begin(), writes.end(), [&](const Write& write) { return write.at > index; });
    const std::int64_t bytes = step_.bytes(step_[value].storage);
    const auto can_move = [&](const Write& write) {
      const Tensor& t = step_[write.made];
      return write.stays && t.offset == 0 && t.row_stride == 0 && !t.state && step_.bytes(write.made) == bytes;
    };
    if (!updates_apart(step_.instructions[next->at], value, next->made) || !std::all_of(next, writes.end(), can_move))
      return false;
    const std::vector<Write> later(next, writes.end());
    writes.erase(next, writes.end());
    for (const Write& write : later) step_[write.made].storage = later.front().made;
    writes_[static_cast<std::size_t>(later.front().made)] = later;
    return true;
  }

  static bool updates_apart(const Instruction& instruction, TensorId from, TensorId to) {
    const auto output =
        static_cast<int>(std::find(instruction.outputs.begin(), instruction.outputs.end(), to) - instruction.outputs.begin());
    const int slot = instruction.op->updates_in_place(output);
    return slot >= 0 && instruction.op->updates_apart(output) && instruction.inputs[static_cast<std::size_t>(slot)] == from;
  }

  TensorId copy_of(TensorId input, const Tag& tag, std::vector<Instruction>& before) {
    auto [copy, is_new] = copies_.try_emplace(input, no_tensor);
    if (!is_new) return copy->second;
    copy->second = static_cast<TensorId>(step_.tensors.size());
    Tensor tensor = step_[input];
    tensor.storage = copy->second;
    tensor.offset = 0;
    tensor.recomputed = false;
    before.push_back({.op = &registry().get("cast"),
                      .inputs = {input},
                      .outputs = {copy->second},
                      .attributes = {{"dtype", std::string(name_of(tensor.dtype))}},
                      .tag = tag});
    before.back().tag.inserted_by = "pipeline";
    step_.tensors.push_back(std::move(tensor));
    return copy->second;
  }

  Program& step_;
  std::vector<std::vector<Write>> writes_;  // by storage, in their order
  std::map<TensorId, TensorId> copies_;
};

/// By instruction: true if it can run at the end of its part, with or without keeping tensors that are updated in place, but
/// without keeping recomputed activations.
std::vector<bool> can_wait(const Program& step, const std::vector<bool>& apart, const Keeper& keeper,
                           const SendFirst& send_first) {
  std::vector<bool> result(step.instructions.size(), false);
  if (!send_first.on) return result;
  const std::map<std::pair<int, int>, bool> sends = sending_parts(step);
  std::vector<bool> wanted(step.tensors.size(), false);  // by instructions that stay in place
  for (std::size_t i = step.instructions.size(); i-- > 0;) {
    const Instruction& instruction = step.instructions[i];
    const bool keeps = instruction.tag.micro_batch >= step.micro_batches - send_first.of_last;
    const auto is_wanted = [&](TensorId id) { return id != no_tensor && wanted[static_cast<std::size_t>(id)]; };
    const auto is_short_lived = [&](TensorId id) {
      return id != no_tensor && ((!keeps && keeper.overwritten(id, i)) || step[id].recomputed);
    };
    const auto part = sends.find({instruction.tag.micro_batch, instruction.tag.stage});
    result[i] = apart[i] && part != sends.end() && part->second &&
                std::none_of(instruction.outputs.begin(), instruction.outputs.end(), is_wanted) &&
                std::none_of(instruction.inputs.begin(), instruction.inputs.end(), is_short_lived);
    if (result[i] || !apart[i]) continue;  // no other instruction reads it
    for (TensorId input : instruction.inputs) {
      if (input != no_tensor) wanted[static_cast<std::size_t>(input)] = true;
    }
  }
  return result;
}

}  // namespace

void reorder(Program& step, const std::vector<Action>& order, const std::vector<std::size_t>& asked_before,
             const SendFirst& send_first) {
  const bool split =
      std::any_of(order.begin(), order.end(), [](const Action& action) { return action.part == Part::weight_gradient; });
  const std::vector<bool> apart = weight_gradients(step);
  Keeper keeper(step, apart);
  const std::vector<bool> last = can_wait(step, apart, keeper, split ? SendFirst{.on = false} : send_first);
  std::map<Key, Body> bodies;
  Body* newest = nullptr;
  const std::size_t count = step.instructions.size();
  for (std::size_t i = 0; i < count; ++i) {
    Instruction& instruction = step.instructions[i];
    const Tag& tag = instruction.tag;
    if (tag.stage >= 0 && tag.micro_batch >= 0) {
      if (last[i] || (split && apart[i]))
        keeper.keep(instruction, i, bodies[{Part::backward, tag.micro_batch, tag.stage}].instructions);
      if (split && apart[i]) instruction.tag.phase = Phase::weight_gradient;
      const Part part = tag.phase == Phase::forward ? Part::forward : split && apart[i] ? Part::weight_gradient : Part::backward;
      newest = &bodies[{part, tag.micro_batch, tag.stage}];
    }
    // Instructions of no stage, such as the sum of the losses, stay after the one that they followed.
    if (newest == nullptr) throw ProgramError("'" + std::string(instruction.op->name()) + "' comes before any pipeline stage");
    if (instruction.op->movement() == Movement::receive) {
      newest->receives.push_back(std::move(instruction));
      continue;
    }
    newest->can_wait.resize(newest->instructions.size(), false);  // copies
    newest->can_wait.push_back(last[i]);
    newest->instructions.push_back(std::move(instruction));
  }
  step.instructions.clear();
  auto append = [&](std::vector<Instruction>& list) {
    std::move(list.begin(), list.end(), std::back_inserter(step.instructions));
  };
  std::vector<Body> ordered(order.size());
  std::vector<std::vector<std::size_t>> asked_at(order.size());
  for (std::size_t a = 0; a < order.size(); ++a) {
    asked_at[asked_before[a]].push_back(a);
    auto found = bodies.find({order[a].part, order[a].micro_batch, order[a].stage});
    if (found == bodies.end()) continue;  // a part without instructions
    ordered[a] = std::move(found->second);
    let_send_first(ordered[a]);
    bodies.erase(found);
  }
  if (!bodies.empty()) {
    throw ProgramError("the pipeline's schedule leaves out a part of stage " +
                       std::to_string(std::get<2>(bodies.begin()->first)));
  }
  for (std::size_t a = 0; a < order.size(); ++a) {
    for (std::size_t asking : asked_at[a]) append(ordered[asking].receives);
    append(ordered[a].instructions);
  }
}

void sum_tied_gradients(Program& step, int axis) {
  Builder builder(step);
  builder.tag.phase = Phase::backward;
  builder.tag.inserted_by = "pipeline";
  for (Parameter& p : step.parameters) {
    if (p.tied_replica < 0 || p.gradient == no_tensor) continue;
    const int mine = step.mesh.coordinate(step.rank, axis), other = step.mesh.coordinate(p.tied_replica, axis);
    // The lower of two neighbours sends to the next one; with two ranks both ways are the same.
    const int lower = std::min(mine, other), higher = std::max(mine, other);
    const bool adjacent = next_on(step.mesh, axis, lower) == higher;
    if (!adjacent && next_on(step.mesh, axis, higher) != lower) {
      throw UsageError("strategy 'pipeline': '" + p.name + "' is shared by two stages that are no neighbours");
    }
    const bool to_next = adjacent == (mine == lower);
    emit_send(builder, p.gradient, axis, to_next ? Lane::to_next : Lane::to_previous);
    const TensorId theirs = emit_receive(builder, p.gradient, axis, to_next ? Lane::from_next : Lane::from_previous);
    p.gradient = builder.emit_one("add", {p.gradient, theirs}, {}, std::string(step[p.gradient].name));
  }
}

}  // namespace consist::pipeline
