// moe_dispatch: a row for each choice of an expert by a token, sorted by expert; moe_combine: the sum of each token's rows.
// Gradients of both. Along an axis of experts, which a strategy names in moe_dispatch's attribute "axis", each rank sees the
// tokens of the whole group, or those that were sent to it, and makes the rows of its own experts, up to its capacity; the sums
// of combine are then partial, or are sent back. Along an axis of tokens each rank makes the rows of its own tokens, and the
// capacity always suffices. Of several axes of experts tokens may be sent along some and be gathered along the others.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

/// Tokens that ranks have sent (moe_send) are [sources, destinations, capacity, channels]: along the axes of the all_to_all each
/// rank has those that were sent to it, along axes of tokens each has its own.
bool were_sent(const TensorType& tokens) {
  return tokens.shape.rank() == 4;
}
constexpr Placement by_destination = Placement::shard(1);

/// The way of tokens like these to their experts along an axis that shards those: sent from rank to rank, or gathered.
Placement at_experts(Placement placement, const TensorType& tokens) {
  return were_sent(tokens) && over_tokens(placement) ? by_destination : Placement::replicate();
}

/// The placement of tokens like these along an axis that shards them: the present one, or the first that may be sharded.
Placement divided(Placement placement, const TensorType& tokens) {
  if (were_sent(tokens)) return Placement::shard(2);
  return over_tokens(placement) ? placement : first_dim;
}
bool are_divided(Placement placement, const TensorType& tokens) {
  return were_sent(tokens) ? placement.is_shard(2) : over_tokens(placement);
}

/// The rows that an op finds along an axis: those of other experts, those of other tokens, or the same on all ranks.
enum class Along : std::uint8_t { experts, tokens, neither };

/// `counts` is sharded by experts, or is each rank's own where tokens are.
Along kind_of(Placement pairs, Placement counts) {
  if (counts.is_shard(0)) return Along::experts;
  return pairs.is_shard(0) ? Along::tokens : Along::neither;
}

class Rows : public NamedOp {
 public:
  using NamedOp::NamedOp;

 protected:
  /// pairs i32[rows], whose size is the number of rows.
  std::int64_t check_rows(const Types& in, std::size_t pairs, std::size_t counts) const {
    const TensorType& p = present(in, pairs);
    const TensorType& c = present(in, counts);
    require(p.dtype == DType::i32 && p.shape.rank() == 1, "pairs must be i32[rows]");
    require(c.dtype == DType::i32 && c.shape.rank() == 1, "counts must be i32[experts]");
    return p.shape[0];
  }
  const TensorType& check_experts(const Types& in, std::size_t index) const {
    const TensorType& experts = present(in, index);
    require(experts.dtype == DType::i32 && (experts.shape.rank() == 3 || were_sent(experts)),
            "experts must be i32[batch, sequence, choices], or of tokens that were sent");
    return experts;
  }
  /// The type of tokens like these with so many channels.
  static TensorType tokens_of(const TensorType& like, DType dtype, std::int64_t channels) {
    TensorType tokens{dtype, like.shape};
    tokens.shape[tokens.shape.rank() - 1] = channels;
    return tokens;
  }
  /// Placements of pairs, counts and a tensor of tokens, in place; returns the placement of a sum of rows over each token.
  static Placement place(Placement& pairs, Placement& counts, Placement& tokens, const TensorType& type) {
    switch (kind_of(pairs, counts)) {
      case Along::experts:
        tokens = at_experts(tokens, type);
        return tokens.is_replicate() ? Placement::partial() : tokens;
      case Along::tokens:
        tokens = divided(tokens, type);
        counts = Placement::partial();
        return tokens;
      case Along::neither:
        pairs = counts = tokens = Placement::replicate();
        return tokens;
    }
    return tokens;
  }
  static Placement rows_as(Placement pairs) { return pairs.is_shard(0) ? row_dim : Placement::replicate(); }
};

class DispatchGrad final : public Rows {
 public:
  DispatchGrad() : Rows("moe_dispatch_grad") {}
  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& drows = present(in, 0);
    require(drows.shape.rank() == 3 && drows.shape[0] == 1, "the gradient of rows must be [1, rows, channels]");
    check_present(in, 1, {DType::f32, {drows.shape[1]}});
    require(check_rows(in, 2, 3) == drows.shape[1], "pairs are of other rows");
    const TensorType& experts = check_experts(in, 4);
    return {tokens_of(experts, drows.dtype, drows.shape[2]), TensorType{DType::f32, experts.shape}};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement sum = place(axis.inputs[2], axis.inputs[3], axis.inputs[4], *in[4]);
    axis.inputs[0] = rows_as(axis.inputs[2]);
    axis.inputs[1] = axis.inputs[2];
    axis.outputs = {sum, sum};
  }
};

class Dispatch final : public Rows {
 public:
  Dispatch() : Rows("moe_dispatch") {}
  const Op* with_amax() const noexcept override {
    static const Op* const op = registry().find("moe_dispatch_amax");
    return op;
  }
  bool dispatches_tokens() const noexcept override { return true; }
  bool gradient_reads_output(int output) const noexcept override { return output == 2 || output == 3; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 0);
    require(x.shape.rank() == 3 || were_sent(x), "x must be [batch, sequence, channels], or tokens that were sent");
    const TensorType& experts = check_experts(in, 1);
    require(tokens_of(x, DType::i32, experts.shape.last()) == experts, "x and experts are of different tokens");
    check_present(in, 2, {DType::f32, experts.shape});
    const std::int64_t rows = attributes.integer("rows"), count = attributes.integer("experts");
    require(rows > 0 && count > 0, "rows and experts must be positive");
    require(attributes.has("axis") || rows == experts.shape.elements(),
            "rows must be as many as choices where every rank has all experts");
    return {TensorType{x.dtype, {1, rows, x.shape.last()}}, TensorType{DType::f32, {rows}}, TensorType{DType::i32, {rows}},
            TensorType{DType::i32, {count}}, TensorType{DType::f32, {}}};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    if (attributes.has("axis") && attributes.axes("axis").contains(axis.axis)) {
      for (Placement& input : axis.inputs) input = at_experts(input, *in[0]);
      axis.outputs = {row_dim, first_dim, first_dim, first_dim, Placement::partial()};
      return;
    }
    const Placement tokens = are_divided(axis.inputs[0], *in[0]) ? axis.inputs[0] : Placement::replicate();
    for (Placement& input : axis.inputs) input = tokens;
    if (tokens.is_replicate()) {
      axis.outputs.assign(5, tokens);
    } else {
      axis.outputs = {row_dim, first_dim, first_dim, Placement::partial(), Placement::partial()};
    }
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const TensorId x = f.inputs[0], weights = f.inputs[2];
    const TensorId drows = d.gradient(f.outputs[0]), drow_weights = d.gradient(f.outputs[1]);
    if (drows == no_tensor || drow_weights == no_tensor) fail("its rows and their weights must both be used");
    const std::vector<TensorId> grads =
        d.build().emit("moe_dispatch_grad", {drows, drow_weights, f.outputs[2], f.outputs[3], f.inputs[1]}, {},
                       {d.program()[x].name + ".grad", d.program()[weights].name + ".grad"});
    d.accumulate_grad(x, grads[0]);
    d.accumulate_grad(weights, grads[1]);
  }
};

class CombineGrad final : public Rows {
 public:
  CombineGrad() : Rows("moe_combine_grad") {}
  const Op* with_amax() const noexcept override {
    static const Op* const op = registry().find("moe_combine_grad_amax");
    return op;
  }
  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& dy = present(in, 0);
    require(dy.shape.rank() == 3 || were_sent(dy), "dy must be [batch, sequence, channels], or of tokens that were sent");
    require(attributes.integer("choices") > 0, "choices must be positive");
    return {TensorType{dy.dtype, {1, check_rows(in, 1, 2), dy.shape.last()}}};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    place(axis.inputs[1], axis.inputs[2], axis.inputs[0], *in[0]);
    axis.outputs = {rows_as(axis.inputs[1])};
  }
};

class Combine final : public Rows {
 public:
  Combine() : Rows("moe_combine") {}
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }
  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& rows = present(in, 0);
    require(rows.shape.rank() == 3 && rows.shape[0] == 1, "rows must be [1, rows, channels]");
    require(check_rows(in, 1, 2) == rows.shape[1], "pairs are of other rows");
    const TensorType& experts = check_experts(in, 3);
    return {tokens_of(experts, rows.dtype, rows.shape[2])};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    axis.outputs = {place(axis.inputs[1], axis.inputs[2], axis.inputs[3], *in[3])};
    axis.inputs[0] = rows_as(axis.inputs[1]);
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const Attributes choices{{"choices", d.program()[f.inputs[3]].shape.last()}};
    d.accumulate_grad(f.inputs[0], d.build().emit_one("moe_combine_grad", {d.gradient(f.outputs[0]), f.inputs[1], f.inputs[2]},
                                                      choices, d.program()[f.inputs[0]].name + ".grad"));
  }
};

}  // namespace

void register_moe_rows(OpRegistry& registry) {
  registry.add(std::make_unique<Dispatch>());
  registry.add(std::make_unique<DispatchGrad>());
  registry.add(std::make_unique<Combine>());
  registry.add(std::make_unique<CombineGrad>());
}

}  // namespace consist::ops
