// moe_send: the tokens that a rank sends to each rank of a group that shares experts, once to each rank that has an expert of
// theirs; moe_return: the sum of what comes back for a token. Gradients of both. Tokens in flight are [sources, destinations,
// capacity, channels]: a rank packs a row of this matrix, an all_to_all makes a column of it, which are the tokens that
// moe_dispatch and moe_combine work on.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

constexpr Placement by_source = Placement::shard(0);
constexpr Placement room_dim = Placement::shard(2);  // sharded where tokens are, along axes other than that of experts

class Sends : public NamedOp {
 public:
  using NamedOp::NamedOp;

 protected:
  /// slots i32[batch, sequence, ranks].
  const TensorType& check_slots(const Types& in, std::size_t index) const {
    const TensorType& slots = present(in, index);
    require(slots.dtype == DType::i32 && slots.shape.rank() == 3, "slots must be i32[batch, sequence, ranks]");
    return slots;
  }
  /// The tensor that ranks send: [ranks, ranks, capacity, ...].
  const TensorType& check_sent(const Types& in, std::size_t index, std::int64_t ranks) const {
    const TensorType& sent = present(in, index);
    require(sent.shape.rank() == 4 && sent.shape[0] == ranks && sent.shape[1] == ranks,
            "tokens in flight must be [ranks, ranks, capacity, channels], for the ranks of the slots");
    return sent;
  }
  /// The placement of the packed tensor along `axis`; sets that of `tokens` in place.
  static Placement place(const AxisSharding& axis, const Attributes& attributes, Placement& tokens) {
    const bool of_experts = attributes.axes("axis").contains(axis.axis);
    if (!over_tokens(tokens)) tokens = of_experts ? Placement::shard(0) : Placement::replicate();
    if (of_experts) return by_source;
    return tokens.is_replicate() ? tokens : room_dim;
  }
};

class SendGrad final : public Sends {
 public:
  SendGrad() : Sends("moe_send_grad") {}
  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& slots = check_slots(in, 2);
    const TensorType& dsent = check_sent(in, 0, slots.shape[2]);
    const TensorType& experts = present(in, 3);
    require(experts.dtype == DType::i32 && experts.shape.rank() == 3, "experts must be i32[batch, sequence, choices]");
    require(experts.shape[0] == slots.shape[0] && experts.shape[1] == slots.shape[1],
            "slots and experts are of different tokens");
    check_present(in, 1, {DType::f32, {dsent.shape[0], dsent.shape[1], dsent.shape[2], experts.shape[2]}});
    require(attributes.integer("experts") % slots.shape[2] == 0, "the ranks must share the experts equally");
    return {TensorType{dsent.dtype, {slots.shape[0], slots.shape[1], dsent.shape[3]}}, TensorType{DType::f32, experts.shape}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    axis.inputs[0] = axis.inputs[1] = place(axis, attributes, axis.inputs[2]);
    axis.inputs[3] = axis.inputs[2];
    axis.outputs = {axis.inputs[2], axis.inputs[2]};
  }
};

class Send final : public Sends {
 public:
  Send() : Sends("moe_send") {}
  bool dispatches_tokens() const noexcept override { return true; }
  bool gradient_reads_output(int output) const noexcept override { return output == 3; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 0);
    const TensorType& experts = present(in, 1);
    require(x.shape.rank() == 3, "x must be [batch, sequence, channels]");
    require(experts.dtype == DType::i32 && experts.shape.rank() == 3, "experts must be i32[batch, sequence, choices]");
    require(experts.shape[0] == x.shape[0] && experts.shape[1] == x.shape[1], "x and experts are of different tokens");
    check_present(in, 2, {DType::f32, experts.shape});
    attributes.axes("axis");
    const std::int64_t rows = attributes.integer("rows"), ranks = attributes.integer("ranks"),
                       count = attributes.integer("experts");
    require(rows > 0 && ranks > 0 && count > 0 && count % ranks == 0,
            "rows must be positive, and the ranks must share the experts equally");
    const auto packed = [&](DType type, std::int64_t channels) { return TensorType{type, {ranks, ranks, rows, channels}}; };
    return {packed(x.dtype, x.shape[2]), packed(DType::i32, experts.shape[2]), packed(DType::f32, experts.shape[2]),
            TensorType{DType::i32, {x.shape[0], x.shape[1], ranks}}, TensorType{DType::f32, {}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    const Placement packed = place(axis, attributes, axis.inputs[0]), tokens = axis.inputs[0];
    axis.inputs[1] = axis.inputs[2] = tokens;
    axis.outputs = {packed, packed, packed, tokens, summed_over_tokens(tokens)};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const TensorId x = f.inputs[0], weights = f.inputs[2];
    const TensorId dsent = d.gradient(f.outputs[0]), dsent_weights = d.gradient(f.outputs[2]);
    if (dsent == no_tensor || dsent_weights == no_tensor) fail("the tokens and their weights must both be used");
    const Attributes attributes{{"axis", f.attributes.axes("axis")}, {"experts", f.attributes.integer("experts")}};
    const std::vector<TensorId> grads =
        d.build().emit("moe_send_grad", {dsent, dsent_weights, f.outputs[3], f.inputs[1]}, attributes,
                       {d.program()[x].name + ".grad", d.program()[weights].name + ".grad"});
    d.accumulate_grad(x, grads[0]);
    d.accumulate_grad(weights, grads[1]);
  }
};

class ReturnGrad final : public Sends {
 public:
  ReturnGrad() : Sends("moe_return_grad") {}
  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& dy = present(in, 0);
    const TensorType& slots = check_slots(in, 1);
    require(dy.shape.rank() == 3 && dy.shape[0] == slots.shape[0] && dy.shape[1] == slots.shape[1],
            "dy must be [batch, sequence, channels], of the slots' tokens");
    attributes.axes("axis");
    require(attributes.integer("rows") > 0, "rows must be positive");
    return {TensorType{dy.dtype, {slots.shape[2], slots.shape[2], attributes.integer("rows"), dy.shape[2]}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    axis.outputs = {place(axis, attributes, axis.inputs[1])};
    axis.inputs[0] = axis.inputs[1];
  }
};

class Return final : public Sends {
 public:
  Return() : Sends("moe_return") {}
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& slots = check_slots(in, 1);
    const TensorType& rows = check_sent(in, 0, slots.shape[2]);
    attributes.axes("axis");
    return {TensorType{rows.dtype, {slots.shape[0], slots.shape[1], rows.shape[3]}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    axis.inputs[0] = place(axis, attributes, axis.inputs[1]);
    axis.outputs = {axis.inputs[1]};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const Tensor& rows = d.program()[f.inputs[0]];
    const Attributes attributes{{"axis", f.attributes.axes("axis")}, {"rows", rows.shape[2]}};
    const std::string name = rows.name + ".grad";
    d.accumulate_grad(f.inputs[0],
                      d.build().emit_one("moe_return_grad", {d.gradient(f.outputs[0]), f.inputs[1]}, attributes, name));
  }
};

}  // namespace

void register_moe_sends(OpRegistry& registry) {
  registry.add(std::make_unique<Send>());
  registry.add(std::make_unique<SendGrad>());
  registry.add(std::make_unique<Return>());
  registry.add(std::make_unique<ReturnGrad>());
}

}  // namespace consist::ops
