#include "plugins/strategies/cp/exchanges.h"

#include <string>
#include <utility>
#include <vector>

#include "consist/op.h"

namespace consist::context_parallel {
namespace {

constexpr std::size_t operands = 3;  // of attention: queries, keys, values
constexpr int channel_dim = 2;       // of an activation [batch, sequence, channels]
constexpr int part_dim = 0;          // of its slices [slices, batch, sequence, channels of a slice]
constexpr int sequence_of_parts = 2;

class Exchanger {
 public:
  Exchanger(Program& program, int axis) : program_(program), axis_(axis), ranks_(program.mesh.size_of(axis)) {}

  void run() {
    std::vector<Instruction> old = std::move(program_.instructions);
    program_.instructions.clear();
    for (Instruction& i : old) {
      if (i.op->attends())
        exchange(std::move(i));
      else
        program_.instructions.push_back(std::move(i));
    }
  }

 private:
  /// A tensor whose type is inferred when shardings are propagated, and that is then resharded to `wish`.
  TensorId add(const std::string& name, int rank, Placement wish) {
    const auto id = static_cast<TensorId>(program_.tensors.size());
    Tensor tensor{.name = name, .storage = id};
    for (int d = 0; d < rank; ++d) tensor.shape.push_back(ranks_);
    tensor.placements[axis_] = wish;
    program_.tensors.push_back(std::move(tensor));
    return id;
  }
  void emit(std::string_view op, TensorId input, TensorId output, const Tag& tag, Attributes attributes = {}) {
    program_.instructions.push_back(
        {.op = &registry().get(op), .inputs = {input}, .outputs = {output}, .attributes = std::move(attributes), .tag = tag});
  }
  TensorId split(TensorId activation, Placement wish, const Tag& tag) {
    const TensorId parts = add(program_[activation].name, 4, wish);
    emit("split_channels", activation, parts, tag, {{"parts", std::int64_t{ranks_}}});
    return parts;
  }

  void exchange(Instruction attention) {
    const Tag tag = attention.tag;
    // All are in flight before the first one is waited for.
    std::vector<TensorId> parts;
    for (std::size_t k = 0; k < operands; ++k) parts.push_back(split(attention.inputs[k], Placement::shard(part_dim), tag));
    for (std::size_t k = 0; k < operands; ++k) {
      const TensorId heads = add(program_[attention.inputs[k]].name, 3, Placement::shard(channel_dim));
      emit("merge_channels", parts[k], heads, tag);
      attention.inputs[k] = heads;
    }
    const TensorId result = attention.outputs[0];
    const TensorId of_heads = add(program_[result].name, 3, Placement::shard(channel_dim));
    attention.outputs[0] = of_heads;
    program_.instructions.push_back(std::move(attention));
    const TensorId back = split(of_heads, Placement::shard(sequence_of_parts), tag);
    emit("merge_channels", back, result, tag);
  }

  Program& program_;
  int axis_, ranks_;
};

}  // namespace

void exchange_around_attention(Program& forward, int axis) {
  Exchanger(forward, axis).run();
}

}  // namespace consist::context_parallel
