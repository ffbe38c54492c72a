// attention_part: attention of one slice of the queries to one slice of the keys, merged with earlier results by the
// logarithms of the softmaxes' denominators (Liu et al., 2023, "Ring Attention"), and its gradient. Each rank has one slice.
#include "core/ops/attention_base.h"

namespace consist::ops {
namespace {

class PartBase : public AttentionBase {
 public:
  using AttentionBase::AttentionBase;

 protected:
  AttentionTypes part_shapes(const TensorType& q, const TensorType& k, const TensorType& v, const Attributes& attributes) const {
    const std::int64_t parts = attributes.integer("zigzag"), shift = attributes.integer("shift");
    require(parts > 0 && shift >= 0 && shift < parts, "attribute 'shift' must be at least 0 and less than 'zigzag'");
    return shapes(q, k, v, attributes);
  }
  static TensorType in_f32(const TensorType& type) { return {DType::f32, type.shape}; }

  /// Each slice has as many visible pairs as any other, half of all. Windows hide more of some slices than of others; each is
  /// given the mean.
  Cost part_cost(const Program& program, const Instruction& i, std::size_t q, double of_scores, double of_values) const {
    Cost cost = Op::cost(program, i);
    cost.flops = visible_flops(program, i, i.inputs[q], program[i.inputs[q + 1]].shape[1], of_scores, of_values) /
                 static_cast<double>(i.attributes.integer("zigzag"));
    cost.depth = static_cast<int>(i.attributes.integer("head_dim"));
    return cost;
  }
};

class AttentionPart final : public PartBase {
 public:
  AttentionPart() : PartBase("attention_part") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const AttentionTypes s = part_shapes(present(in, 0), present(in, 1), present(in, 2), attributes);
    check_documents(in, 3, s.q.shape);
    check(in, 4, in_f32(s.o));
    check(in, 5, s.lse);
    require(has(in, 4) == has(in, 5), "o and lse of the parts before come together");
    return {in_f32(s.o), s.lse};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const Placement placement = of_queries(axis.inputs[0]);
    for (const std::size_t i : {0U, 1U, 2U}) axis.inputs[i] = placement;
    if (axis.inputs.size() > 3) axis.inputs[3] = of_documents(placement);
    if (axis.inputs.size() > 4) axis.inputs[4] = placement;
    if (axis.inputs.size() > 5) axis.inputs[5] = of_lse(placement);
    axis.outputs = {placement, of_lse(placement)};
  }
  void check_places(const Program& program, const Instruction& i) const override {
    check_heads(program, i.attributes, i.inputs[0], i.inputs[1], i.inputs[2]);
  }
  bool takes_strided_view(int input) const noexcept override { return input < 3; }
  int updates_in_place(int output) const noexcept override { return 4 + output; }
  Cost cost(const Program& program, const Instruction& i) const override { return part_cost(program, i, 0, 1, 1); }
};

class AttentionPartGrad final : public PartBase {
 public:
  AttentionPartGrad() : PartBase("attention_part_grad") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const AttentionTypes s = part_shapes(present(in, 1), present(in, 2), present(in, 3), attributes);
    check_present(in, 0, s.o);
    check_present(in, 4, s.o);
    check_present(in, 5, s.lse);
    check_documents(in, 6, s.q.shape);
    check(in, 7, in_f32(s.q));
    return {in_f32(s.q), in_f32(s.k), in_f32(s.v)};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const Placement placement = of_queries(axis.inputs[1]);
    for (const std::size_t i : {0U, 1U, 2U, 3U, 4U}) axis.inputs[i] = placement;
    axis.inputs[5] = of_lse(placement);
    if (axis.inputs.size() > 6) axis.inputs[6] = of_documents(placement);
    if (axis.inputs.size() > 7) axis.inputs[7] = placement;
    axis.outputs = {placement, placement, placement};
  }
  void check_places(const Program& program, const Instruction& i) const override {
    check_heads(program, i.attributes, i.inputs[1], i.inputs[2], i.inputs[3]);
  }
  bool takes_strided_view(int input) const noexcept override { return input >= 1 && input <= 3; }
  int updates_in_place(int output) const noexcept override { return output == 0 ? 7 : -1; }
  Cost cost(const Program& program, const Instruction& i) const override { return part_cost(program, i, 1, 3, 2); }
};

}  // namespace

void register_attention_part(OpRegistry& registry) {
  registry.add(std::make_unique<AttentionPart>());
  registry.add(std::make_unique<AttentionPartGrad>());
}

}  // namespace consist::ops
