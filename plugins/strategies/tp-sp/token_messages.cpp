#include "plugins/strategies/tp-sp/token_messages.h"

#include <algorithm>

#include "consist/op.h"

namespace consist::tensor_parallel {
namespace {

constexpr int sequence_dim = 1;
constexpr std::int64_t flat = -1;  // attribute "dim" of collectives over flattened tensors

/// True if a forward op reads a rank's tokens and is not known to do the same for any tokens. Only inputs are looked at: outputs
/// beside the first may be sharded along a dimension of that number, too, such as heads.
bool needs_its_tokens(const Program& step, const Instruction& i, int axis) {
  if (i.tag.phase != Phase::forward || i.op->changes_placement() || i.op->token_order() == TokenOrder::any) return false;
  return std::ranges::any_of(i.inputs, [&](TensorId id) {
    return id != no_tensor && step[id].role != Role::parameter && step[id].shape.rank() > sequence_dim &&
           step[id].placements[axis].is_shard(sequence_dim);
  });
}

/// True for an all_to_all between a rank's tokens and its channels: it takes the same slice of every sequence.
bool exchanges_tokens(const Instruction& i, int axis) {
  if (!i.op->is_collective() || i.queue.axes() != axis || i.op->movement() != Movement::none) return false;
  return i.attributes.integer_or("dim", flat) == sequence_dim || i.attributes.integer_or("to", flat) == sequence_dim;
}

}  // namespace

bool moves_tokens(const Program& program, const Instruction& i, int axis) {
  const Movement movement = i.op->movement();
  return (movement == Movement::all_gather || movement == Movement::reduce_scatter) && i.queue.axes() == axis &&
         i.attributes.integer_or("dim", flat) == sequence_dim && program[i.inputs[0]].shape.rank() == 3;
}

bool any_tokens_do(const Program& step, int axis) {
  return std::none_of(step.instructions.begin(), step.instructions.end(), [&](const Instruction& i) {
    if (needs_its_tokens(step, i, axis) || exchanges_tokens(i, axis)) return true;
    if (i.op->movement() == Movement::slice) return i.attributes.axes("axis") == axis;
    return i.op->movement() == Movement::send || i.op->movement() == Movement::receive;
  });
}

void move_tokens_as_one_message(Program& step, int axis) {
  if (!any_tokens_do(step, axis)) return;
  for (Instruction& i : step.instructions) {
    if (moves_tokens(step, i, axis) && step.local(i.inputs[0])[0] > 1) i.attributes.set("dim", flat);
  }
}

}  // namespace consist::tensor_parallel
