#include "tests/bench/kernels/context_cases.h"

#include <utility>

namespace consist::bench {
namespace {

/// Programs of one instruction.
class Instructions {
 public:
  Instructions(const AttentionSizes& sizes, DType dtype, int ranks, std::shared_ptr<const Machine> machine)
      : sizes_(sizes), dtype_(dtype), ranks_(ranks), machine_(std::move(machine)) {}

  /// `op`: attention, its gradient, or one of a part; `keys`: where keys and values are along the axis.
  Case make(const std::string& label, std::string_view op, int rank, Attributes attributes, Placement queries,
            Placement keys) const {
    Program program;
    program.mesh = Mesh({{"context", ranks_}});
    program.rank = rank;
    attributes.set("head_dim", sizes_.dim);
    const bool backward = op.find("grad") != op.npos, part = op.find("part") != op.npos,
               adds = part && attributes.integer("shift") > 0;
    const auto add = [&](DType dtype, std::int64_t heads, Placement place) {
      return put(program, {.dtype = dtype, .shape = {sizes_.batch, sizes_.sequence, heads * sizes_.dim}}, place);
    };
    const DType made = part ? DType::f32 : dtype_;
    const TensorId q = add(dtype_, sizes_.heads, queries), k = add(dtype_, sizes_.kv_heads, keys),
                   v = add(dtype_, sizes_.kv_heads, keys),
                   lse = put(program, {.dtype = DType::f32, .shape = {sizes_.batch, sizes_.heads, sizes_.sequence}},
                             queries.is_shard(1) ? Placement::shard(2) : Placement::shard(1));
    Instruction i{.op = &registry().get(op)};
    if (backward) {
      i.inputs = {add(dtype_, sizes_.heads, queries), q, k, v, add(dtype_, sizes_.heads, queries), lse};
      i.outputs = {add(made, sizes_.heads, queries), add(made, sizes_.kv_heads, keys), add(made, sizes_.kv_heads, keys)};
      if (adds) i.inputs.insert(i.inputs.end(), {no_tensor, i.outputs[0]});
    } else {
      i.inputs = {q, k, v};
      i.outputs = {add(made, sizes_.heads, queries), lse};
      if (adds) i.inputs.insert(i.inputs.end(), {no_tensor, i.outputs[0], lse});
    }
    i.attributes = attributes;
    program.instructions.push_back(i);

    Case c{.label = label, .op = std::string(op), .attributes = attributes, .flops = i.op->cost(program, i).flops};
    for (const TensorId id : i.inputs) {
      c.inputs.push_back(id == no_tensor ? std::nullopt : std::optional(local(program, id)));
      c.origins.push_back(id == no_tensor ? Origin{} : program.part(id).origin);
    }
    for (const TensorId id : i.outputs) c.outputs.push_back(local(program, id));
    if (machine_) c.predicted = CostModel(machine_, program.mesh).seconds(program, i);
    return c;
  }

 private:
  static TensorId put(Program& program, Tensor tensor, Placement place) {
    const auto id = static_cast<TensorId>(program.tensors.size());
    tensor.storage = id;
    tensor.placements[0] = place;
    program.tensors.push_back(std::move(tensor));
    return id;
  }
  static TensorType local(const Program& program, TensorId id) { return {program[id].dtype, program.local(id)}; }

  AttentionSizes sizes_;
  DType dtype_;
  int ranks_;
  std::shared_ptr<const Machine> machine_;
};

}  // namespace

std::vector<ContextRank> context_ranks(const AttentionSizes& sizes, DType dtype, int ranks,
                                       std::shared_ptr<const Machine> machine) {
  const Instructions instructions(sizes, dtype, ranks, std::move(machine));
  const Attributes zigzag{{"zigzag", std::int64_t{ranks}}};
  const Placement tokens = Placement::shard(1), heads = Placement::shard(2);
  std::vector<ContextRank> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = "gather " + std::to_string(rank) + "/" + std::to_string(ranks);
    all.push_back({name, {}});
    for (const std::string op : {"attention", "attention_grad"})
      all.back().cases.push_back(
          instructions.make("context, " + op + ", " + name, op, rank, zigzag, tokens, Placement::replicate()));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = "ring " + std::to_string(rank) + "/" + std::to_string(ranks);
    all.push_back({name, {}});
    for (const std::string op : {"attention_part", "attention_part_grad"}) {
      for (std::int64_t shift = 0; shift < ranks; ++shift) {
        Attributes part = zigzag;
        part.set("shift", shift);
        all.back().cases.push_back(
            instructions.make("context, " + op + " " + std::to_string(shift) + ", " + name, op, rank, part, tokens, tokens));
      }
    }
  }
  all.push_back({"ulysses", {}});
  for (const std::string op : {"attention", "attention_grad"})
    all.back().cases.push_back(instructions.make("context, " + op + ", ulysses", op, 0, {}, heads, heads));
  return all;
}

}  // namespace consist::bench
