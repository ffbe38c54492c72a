// attention: causal, grouped queries, within a window or not, and its gradient. Batches and heads may be split, and the queries
// along the sequence, where each rank has all keys and values. With a position the queries are a stretch of the sequence that begins
// there, beside the keys and values of a cache.
#include <algorithm>

#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

constexpr std::size_t position_input = 4;  // where the queries begin, if they are a stretch of the sequence

struct AttentionShape {
  TensorType q, kv, lse;
};

Placement of_queries(Placement placement) {
  return placement.is_shard() ? placement : Placement::replicate();
}
/// Queries of a part of the sequence see keys of all of it.
Placement of_keys(Placement queries) {
  return queries.is_shard(1) ? Placement::replicate() : queries;
}
/// The gradients of keys that queries on several ranks see.
Placement of_keys_grad(Placement queries) {
  return queries.is_shard(1) ? Placement::partial() : queries;
}
/// lse is [batch, heads, sequence].
Placement of_lse(Placement queries) {
  if (queries.is_shard(2)) return Placement::shard(1);
  return queries.is_shard(1) ? Placement::shard(2) : queries;
}
/// Starts of documents are [batch, sequence], one per query.
Placement of_documents(Placement queries) {
  return queries.is_shard(2) ? Placement::replicate() : queries;
}

/// `products` matrix products of 2·D flops per head and visible pair of a query and a key: on average over the queries half of the
/// keys, without those that a window hides. So many each rank has whose queries are a part in zigzag order (but for the ends of
/// windows); of parts in order of position the last has more.
/// Of queries at a position, all keys that there is room for count: those of the longest sequence.
double visible_flops(const Program& program, const Instruction& i, TensorId q, TensorId k, double products) {
  const auto queries = static_cast<double>(program.local(q).elements()), keys = static_cast<double>(program.local(k)[1]);
  const double window = static_cast<double>(i.attributes.integer_or("window", program.local(k)[1]));
  const double hidden = std::max(0.0, keys - window);
  return products * queries * (keys - hidden * hidden / keys);
}

class AttentionBase : public NamedOp {
 public:
  using NamedOp::NamedOp;

 protected:
  /// Heads may be split, each into no parts, and a rank's heads of q must share its heads of k and v.
  void check_heads(const Program& program, const Attributes& attributes, TensorId q, TensorId k, TensorId v) const {
    for (TensorId tensor : {q, k, v}) require_whole_heads(program, tensor, attributes.integer("head_dim"));
    require(program.local(q).last() % program.local(k).last() == 0 && program.local(k) == program.local(v),
            "a rank's heads of q are no multiple of its heads of k and v");
  }
  /// Where input `index` is there it states the position at which each token's document starts: what lies before is not seen.
  void check_documents(const Types& in, std::size_t index, const Shape& q) const {
    check(in, index, {DType::i32, {q[0], q[1]}});
  }
  /// `at_position`: the queries are a stretch of the sequence.
  AttentionShape shapes(const TensorType& q, const TensorType& k, const TensorType& v, const Attributes& attributes,
                        bool at_position = false) const {
    const std::int64_t head_dim = attributes.integer("head_dim");
    require(q.shape.rank() == 3 && k.shape.rank() == 3, "q, k and v must be [batch, sequence, heads*head_dim]");
    require(k == v, "k and v must have the same type");
    require(q.dtype == k.dtype && q.shape[0] == k.shape[0], "q and k must be of the same sequences and dtype");
    require(at_position ? q.shape[1] <= k.shape[1] : q.shape[1] == k.shape[1], "q and k must be of the same tokens");
    require(head_dim > 0 && q.shape[2] % head_dim == 0 && k.shape[2] % head_dim == 0,
            "head_dim must divide the channels of q, k and v");
    require(q.shape[1] > 0 && q.shape[2] > 0 && k.shape[2] > 0, "q, k and v must not be empty");
    require(attributes.integer_or("window", 1) > 0, "window must be at least 1");
    const std::int64_t zigzag = attributes.integer_or("zigzag", 0);
    require(zigzag == 0 || !at_position, "queries at a position are in order of position");
    require(zigzag >= 0 && (zigzag == 0 || q.shape[1] % (2 * zigzag) == 0), "the sequence must be 2·zigzag chunks of equal length");
    require(q.shape[2] % k.shape[2] == 0, "the heads of q must be a multiple of the heads of k and v");
    return {q, k, {DType::f32, {q.shape[0], q.shape[2] / head_dim, q.shape[1]}}};
  }
};

class AttentionGrad final : public AttentionBase {
 public:
  AttentionGrad() : AttentionBase("attention_grad") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const AttentionShape s = shapes(present(in, 1), present(in, 2), present(in, 3), attributes);
    check_present(in, 0, s.q);
    check(in, 4, s.q);
    check_present(in, 5, s.lse);
    check_documents(in, 6, s.q.shape);
    return {s.q, s.kv, s.kv};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const Placement placement = of_queries(axis.inputs[1]);
    for (const std::size_t i : {0U, 1U, 4U}) axis.inputs[i] = placement;
    axis.inputs[2] = axis.inputs[3] = of_keys(placement);
    axis.inputs[5] = of_lse(placement);
    if (axis.inputs.size() > 6) axis.inputs[6] = of_documents(placement);
    axis.outputs = {placement, of_keys_grad(placement), of_keys_grad(placement)};
  }
  void check_places(const Program& program, const Instruction& i) const override {
    check_heads(program, i.attributes, i.inputs[1], i.inputs[2], i.inputs[3]);
  }
  bool takes_strided_view(int input) const noexcept override { return input >= 1 && input <= 3; }
  bool makes_strided_view(int /*output*/) const noexcept override { return true; }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = visible_flops(program, i, i.inputs[1], i.inputs[2], 5);  // scores again, dv, dp, dq, dk
    cost.depth = static_cast<int>(i.attributes.integer("head_dim"));
    return cost;
  }
};

class Attention final : public AttentionBase {
 public:
  Attention() : AttentionBase("attention") {}
  Separable separable() const noexcept override { return Separable::sequences; }
  bool attends() const noexcept override { return true; }
  std::optional<ChannelSplit> channel_split(const Attributes& attributes) const override {
    return ChannelSplit{.inputs = 3, .unit = attributes.integer("head_dim")};
  }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const AttentionShape s = shapes(present(in, 0), present(in, 1), present(in, 2), attributes, has(in, position_input));
    check_documents(in, 3, s.q.shape);
    check(in, position_input, {DType::i32, {1}});
    return {s.q, s.lse};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const bool at_position = axis.inputs.size() > position_input;
    // A stretch is not divided further: where it begins is one number for all ranks.
    const Placement placement =
        at_position && axis.inputs[0].is_shard(1) ? Placement::replicate() : of_queries(axis.inputs[0]);
    axis.inputs[0] = placement;
    axis.inputs[1] = axis.inputs[2] = of_keys(placement);
    if (axis.inputs.size() > 3) axis.inputs[3] = of_documents(placement);
    if (at_position) axis.inputs[position_input] = Placement::replicate();
    axis.outputs = {placement, of_lse(placement)};
  }
  void check_places(const Program& program, const Instruction& i) const override {
    check_heads(program, i.attributes, i.inputs[0], i.inputs[1], i.inputs[2]);
  }
  bool takes_strided_view(int input) const noexcept override { return input < 3; }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    if (input_of(f, position_input) != no_tensor) fail("queries beside a cache have no gradient");
    const TensorId dy = d.gradient(f.outputs[0]);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < 3; ++i) names.push_back(d.program()[f.inputs[i]].name + ".grad");
    std::vector<TensorId> inputs{dy, f.inputs[0], f.inputs[1], f.inputs[2], f.outputs[0], f.outputs[1]};
    if (const TensorId documents = input_of(f, 3); documents != no_tensor) inputs.push_back(documents);
    const std::vector<TensorId> grads = d.build().emit("attention_grad", std::move(inputs), f.attributes, names);
    for (std::size_t i = 0; i < 3; ++i) d.accumulate_grad(f.inputs[i], grads[i]);
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = visible_flops(program, i, i.inputs[0], i.inputs[1], 2);  // scores, values
    cost.depth = static_cast<int>(i.attributes.integer("head_dim"));
    return cost;
  }
};

}  // namespace

void register_attention(OpRegistry& registry) {
  registry.add(std::make_unique<Attention>());
  registry.add(std::make_unique<AttentionGrad>());
}

}  // namespace consist::ops
