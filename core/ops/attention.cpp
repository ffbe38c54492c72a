// attention: causal, grouped queries, within a window or not, and its gradient. Where queries are sharded along the sequence each
// rank has all keys and values; with attribute "ring" these are sharded alike, and the strategy that set it replaces the op by
// attention_part. With a position, the queries are tokens of a prefill or decode from there on, beside the keys of a KV cache.
#include "core/ops/attention_base.h"

namespace consist::ops {
namespace {

constexpr std::size_t position_input = 4;  // where the queries begin, in prefill and decode

class AttentionGrad final : public AttentionBase {
 public:
  AttentionGrad() : AttentionBase("attention_grad") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const AttentionTypes s = shapes(present(in, 1), present(in, 2), present(in, 3), attributes);
    check_present(in, 0, s.o);
    check(in, 4, s.o);
    check_present(in, 5, s.lse);
    check_documents(in, 6, s.q.shape);
    return {s.q, s.k, s.v};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    const Placement placement = of_queries(axis.inputs[1]);
    for (const std::size_t i : {0U, 1U, 4U}) axis.inputs[i] = placement;
    axis.inputs[2] = axis.inputs[3] = of_keys(placement, attributes);
    axis.inputs[5] = of_lse(placement);
    if (axis.inputs.size() > 6) axis.inputs[6] = of_documents(placement);
    axis.outputs = {placement, of_keys_grad(placement, attributes), of_keys_grad(placement, attributes)};
  }
  void check_places(const Program& program, const Instruction& i) const override {
    check_heads(program, i.attributes, i.inputs[1], i.inputs[2], i.inputs[3]);
  }
  bool takes_strided_view(int input) const noexcept override { return input >= 1 && input <= 3; }
  bool makes_strided_view(int /*output*/) const noexcept override { return true; }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops =
        visible_flops(program, i, i.inputs[1], keys_seen(program, i, i.inputs[2]), 3, 2);  // scores again, dq, dk; dv, dp
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
    return ChannelSplit{.inputs = 3, .unit = attributes.integer("head_dim"), .last_unit = attributes.integer_or("value_dim", 0)};
  }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const AttentionTypes s = shapes(present(in, 0), present(in, 1), present(in, 2), attributes, has(in, position_input));
    check_documents(in, 3, s.q.shape);
    check(in, position_input, {DType::i32, {1}});
    return {s.o, s.lse};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    const bool at_position = axis.inputs.size() > position_input;
    // Tokens of a prefill are not sharded: where they begin is one number for all ranks.
    const Placement placement =
        at_position && axis.inputs[0].is_shard(1) ? Placement::replicate() : of_queries(axis.inputs[0]);
    axis.inputs[0] = placement;
    axis.inputs[1] = axis.inputs[2] = of_keys(placement, attributes);
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
    cost.flops = visible_flops(program, i, i.inputs[0], keys_seen(program, i, i.inputs[1]), 1, 1);  // scores; values
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
