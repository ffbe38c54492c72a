// rope: rotary position embedding, after an RMSNorm of each head where a norm weight is given (qk-norm), and its gradient.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

constexpr int table_input = 1;

/// Batches, tokens and heads (channels) may be sharded.
Placement parts_of(Placement placement) {
  return placement.is_shard() ? placement : Placement::replicate();
}
/// The rows of the table that the tokens of a slice read.
Placement rows_of(Placement placement) {
  return placement.is_shard(1) ? Placement::shard(0) : Placement::replicate();
}

class RopeGrad final : public NamedOp {
 public:
  RopeGrad() : NamedOp("rope_grad") {}
  TokenOrder token_order() const noexcept override { return TokenOrder::fixed; }
  int may_take_place_of(int output) const noexcept override { return output == 0 ? 0 : -1; }
  int position_rows() const noexcept override { return table_input; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& dy = present(in, 0);
    const std::int64_t head_dim = attributes.integer("head_dim");
    require(dy.shape.rank() == 3 && head_dim > 0 && dy.shape[1] > 0 && dy.shape[2] % head_dim == 0, "dy must be [batch, sequence, heads*head_dim]");
    check_present(in, 1, {DType::f32, {dy.shape[1], head_dim}});
    require(has(in, 2) == has(in, 3) && has(in, 2) == has(in, 4), "x, rstd and the norm weight are given together or not at all");
    if (!has(in, 2)) return {dy, std::nullopt};
    check(in, 2, dy);
    check(in, 3, {DType::f32, {dy.shape[0], dy.shape[1], dy.shape[2] / head_dim}});
    check(in, 4, {dy.dtype, {head_dim}});
    const std::optional<DType> gradient = weight_gradient_dtype(attributes);
    require(gradient || !has(in, 5), "there is a sum of the weight's gradients, which attribute 'dtype' does not ask for");
    if (!gradient) return {dy, std::nullopt};
    TensorType dw{*gradient, {head_dim}};
    check(in, 5, dw);
    return {dy, dw};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement placement = parts_of(axis.inputs[0]);
    axis.inputs[0] = placement;
    axis.inputs[table_input] = rows_of(placement);
    const Placement dw = placement.is_replicate() ? Placement::replicate() : Placement::partial();
    if (has(in, 2)) {
      axis.inputs[2] = axis.inputs[3] = placement;
      axis.inputs[4] = Placement::replicate();
    }
    if (has(in, 5)) axis.inputs[5] = dw;
    axis.outputs = {placement, dw};
  }
  void check_places(const Program& program, const Instruction& i) const override {
    require_whole_heads(program, i.inputs[0], i.attributes.integer("head_dim"));
  }
  int updates_in_place(int output) const noexcept override { return output == 1 ? 5 : -1; }
  bool takes_strided_view(int input) const noexcept override { return input == 0 || input == 2; }
  bool makes_strided_view(int output) const noexcept override { return output == 0; }
};

class Rope final : public NamedOp {
 public:
  Rope() : NamedOp("rope") {}
  TokenOrder token_order() const noexcept override { return TokenOrder::fixed; }
  Separable separable() const noexcept override { return Separable::sequences; }
  std::optional<ChannelSplit> channel_split(const Attributes& attributes) const override {
    return ChannelSplit{.inputs = 1, .unit = attributes.integer("head_dim")};
  }
  int may_take_place_of(int output) const noexcept override { return output == 0 ? 0 : -1; }
  bool gradient_reads_output(int output) const noexcept override { return output == 1; }
  int position_rows() const noexcept override { return table_input; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 0);
    const std::int64_t head_dim = attributes.integer("head_dim");
    require(x.shape.rank() == 3 && x.shape[1] > 0, "x must be [batch, sequence, heads*head_dim] of a sequence that is not empty");
    require(head_dim > 0 && head_dim % 2 == 0 && x.shape[2] % head_dim == 0,
            "head_dim must be even and divide the channels of x");
    check_present(in, 1, {DType::f32, {x.shape[1], head_dim}});
    check(in, 2, {x.dtype, {head_dim}});
    if (!has(in, 2)) return {x, std::nullopt};
    return {x, TensorType{DType::f32, {x.shape[0], x.shape[1], x.shape[2] / head_dim}}};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    const Placement placement = parts_of(axis.inputs[0]);
    axis.inputs[0] = placement;
    axis.inputs[table_input] = rows_of(placement);
    if (has(in, 2)) axis.inputs[2] = Placement::replicate();
    axis.outputs = {placement, placement};
  }
  void check_places(const Program& program, const Instruction& i) const override {
    require_whole_heads(program, i.inputs[0], i.attributes.integer("head_dim"));
  }
  bool takes_strided_view(int input) const noexcept override { return input == 0; }
  bool makes_strided_view(int output) const noexcept override { return output == 0; }
  void differentiate(Differentiator& d, const Instruction& forward) const override {
    const TensorId x = forward.inputs[0], table = forward.inputs[1], w = input_of(forward, 2);
    const TensorId dy = d.gradient(forward.outputs[0]);
    const std::string x_name = d.program()[x].name + ".grad";
    Attributes attributes{{"head_dim", forward.attributes.integer("head_dim")}};
    if (w == no_tensor) {
      d.accumulate_grad(x, d.build().emit_one("rope_grad", {dy, table}, attributes, x_name));
      return;
    }
    if (d.requires_grad(w)) attributes.set("dtype", dtype_value(d.gradient_dtype(w)));
    const std::vector<TensorId> out = d.build().emit("rope_grad", {dy, table, x, forward.outputs[1], w, d.accumulator(w)},
                                                     attributes, {x_name, d.program()[w].name + ".grad"});
    d.accumulate_grad(x, out[0]);
    if (out[1] != no_tensor) d.accumulate_grad(w, out[1]);
  }
};

}  // namespace

void register_rope(OpRegistry& registry) {
  registry.add(std::make_unique<Rope>());
  registry.add(std::make_unique<RopeGrad>());
}

}  // namespace consist::ops
