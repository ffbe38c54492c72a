// attention: causal, grouped queries, within a window or not, and its gradient. Batches and heads may be split, positions may
// not.
#include <algorithm>

#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

struct AttentionShape {
  TensorType q, kv, lse;
};

Placement heads_or_batch(Placement placement) {
  return placement.is_shard(0) || placement.is_shard(2) ? placement : Placement::replicate();
}
/// lse is [batch, heads, sequence]: heads are its dimension 1.
Placement of_lse(Placement placement) {
  return placement.is_shard(2) ? Placement::shard(1) : placement;
}

/// `products` matrix products of 2·D flops per head and visible pair of a query and a key: half of the square of the sequence,
/// without the half square that a window hides.
double visible_flops(const Program& program, const Instruction& i, TensorId q, double products) {
  const Shape shape = program.local(q);
  const auto sequence = static_cast<double>(shape[1]), window = static_cast<double>(i.attributes.integer_or("window", shape[1]));
  const double hidden = std::max(0.0, sequence - window);
  return products * static_cast<double>(shape.elements()) * (sequence - hidden * hidden / sequence);
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
  static Placement of_documents(Placement placement) { return placement.is_shard(0) ? placement : Placement::replicate(); }
  AttentionShape shapes(const TensorType& q, const TensorType& k, const TensorType& v, const Attributes& attributes) const {
    const std::int64_t head_dim = attributes.integer("head_dim");
    require(q.shape.rank() == 3 && k.shape.rank() == 3, "q, k and v must be [batch, sequence, heads*head_dim]");
    require(k == v, "k and v must have the same type");
    require(q.dtype == k.dtype && q.shape[0] == k.shape[0] && q.shape[1] == k.shape[1],
            "q and k must be of the same tokens and dtype");
    require(head_dim > 0 && q.shape[2] % head_dim == 0 && k.shape[2] % head_dim == 0,
            "head_dim must divide the channels of q, k and v");
    require(q.shape[1] > 0 && q.shape[2] > 0 && k.shape[2] > 0, "q, k and v must not be empty");
    require(attributes.integer_or("window", 1) > 0, "window must be at least 1");
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
    const Placement placement = heads_or_batch(axis.inputs[1]);
    for (std::size_t i = 0; i < 5; ++i) axis.inputs[i] = placement;
    axis.inputs[5] = of_lse(placement);
    if (axis.inputs.size() > 6) axis.inputs[6] = of_documents(placement);
    axis.outputs = {placement, placement, placement};
  }
  void check_places(const Program& program, const Instruction& i) const override {
    check_heads(program, i.attributes, i.inputs[1], i.inputs[2], i.inputs[3]);
  }
  bool takes_strided_view(int input) const noexcept override { return input >= 1 && input <= 3; }
  bool makes_strided_view(int /*output*/) const noexcept override { return true; }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = visible_flops(program, i, i.inputs[1], 5);  // scores again, dv, dp, dq, dk
    cost.depth = static_cast<int>(i.attributes.integer("head_dim"));
    return cost;
  }
};

class Attention final : public AttentionBase {
 public:
  Attention() : AttentionBase("attention") {}
  Separable separable() const noexcept override { return Separable::sequences; }
  std::optional<ChannelSplit> channel_split(const Attributes& attributes) const override {
    return ChannelSplit{.inputs = 3, .unit = attributes.integer("head_dim")};
  }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const AttentionShape s = shapes(present(in, 0), present(in, 1), present(in, 2), attributes);
    check_documents(in, 3, s.q.shape);
    return {s.q, s.lse};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const Placement placement = heads_or_batch(axis.inputs[0]);
    for (std::size_t i = 0; i < 3; ++i) axis.inputs[i] = placement;
    if (axis.inputs.size() > 3) axis.inputs[3] = of_documents(placement);
    axis.outputs = {placement, of_lse(placement)};
  }
  void check_places(const Program& program, const Instruction& i) const override {
    check_heads(program, i.attributes, i.inputs[0], i.inputs[1], i.inputs[2]);
  }
  bool takes_strided_view(int input) const noexcept override { return input < 3; }
  void differentiate(Differentiator& d, const Instruction& f) const override {
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
    cost.flops = visible_flops(program, i, i.inputs[0], 2);  // scores, values
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
