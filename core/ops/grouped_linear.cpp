// grouped_linear: each expert's rows times its matrix, and its two gradients; moe_swiglu: the gated activation of rows, each
// times its weight. Rows are [1, rows, channels], sorted by expert, padding at the end. A rank that holds a
// slice of the experts works on their rows.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

double grouped_flops(const Program& program, const Instruction& i, TensorId rows, TensorId weight) {
  const Shape w = program.local(weight);
  return 2.0 * rows_in_use(i) * static_cast<double>(program.local(rows).rows()) * static_cast<double>(w[1]) *
         static_cast<double>(w[2]);
}

/// Placements of rows, of the experts' weights and of counts, in place.
void place(Placement& rows, Placement& weights, Placement& counts) {
  if (weights.is_shard(0)) {
    rows = row_dim;
    counts = first_dim;
    return;
  }
  weights = Placement::replicate();
  if (!rows.is_shard(1)) rows = Placement::replicate();
  counts = rows.is_shard(1) ? Placement::partial() : Placement::replicate();  // each rank's own, of its own tokens
}

class Grouped : public NamedOp {
 public:
  using NamedOp::NamedOp;

 protected:
  void check_rows(const TensorType& rows) const {
    require(rows.shape.rank() == 3 && rows.shape[0] == 1, "rows must be [1, rows, channels]");
  }
  void check_counts(const Types& in, std::size_t index, std::int64_t experts) const {
    check_present(in, index, {DType::i32, {experts}});
  }
};

class GroupedLinearInputGrad final : public Grouped {
 public:
  GroupedLinearInputGrad() : Grouped("grouped_linear_input_grad") {}
  int expert_weights() const noexcept override { return 1; }
  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& dy = present(in, 0);
    const TensorType& w = present(in, 1);
    check_rows(dy);
    require(w.shape.rank() == 3 && dy.shape[2] == w.shape[1], "w must be [experts, out, in], out the channels of dy");
    require(dy.dtype == w.dtype, "dy and w have different dtypes");
    check_counts(in, 2, w.shape[0]);
    return {TensorType{dy.dtype, {1, dy.shape[1], w.shape[2]}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    place(axis.inputs[0], axis.inputs[1], axis.inputs[2]);
    axis.outputs = {axis.inputs[0]};
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = grouped_flops(program, i, i.inputs[0], i.inputs[1]);
    return cost;
  }
};

class GroupedLinearWeightGrad final : public Grouped {
 public:
  GroupedLinearWeightGrad() : Grouped("grouped_linear_weight_grad") {}
  bool makes_weight_gradients() const noexcept override { return true; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 0);
    const TensorType& dy = present(in, 1);
    const TensorType& counts = present(in, 2);
    check_rows(x);
    check_rows(dy);
    require(x.shape[1] == dy.shape[1], "x and dy are of different rows");
    require(counts.dtype == DType::i32 && counts.shape.rank() == 1, "counts must be i32[experts]");
    TensorType dw{dtype_attribute(attributes), {counts.shape[0], dy.shape[2], x.shape[2]}};
    check(in, 3, dw);
    return {dw};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    // Counts are sharded where experts are, and each rank's own where tokens are.
    const bool experts = axis.inputs[2].is_shard(0);
    if (!experts) axis.inputs[2] = axis.inputs[0].is_shard(1) ? Placement::partial() : Placement::replicate();
    const bool divided = !axis.inputs[2].is_replicate();
    axis.inputs[0] = axis.inputs[1] = divided ? row_dim : Placement::replicate();
    axis.outputs = {axis.inputs[2]};
    if (has(in, 3)) axis.inputs[3] = axis.outputs[0];
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = grouped_flops(program, i, i.inputs[0], i.outputs[0]);
    return cost;
  }
  int updates_in_place(int /*output*/) const noexcept override { return 3; }
};

class GroupedLinear final : public Grouped {
 public:
  GroupedLinear() : Grouped("grouped_linear") {}
  int expert_weights() const noexcept override { return 1; }
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }
  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& x = present(in, 0);
    const TensorType& w = present(in, 1);
    check_rows(x);
    require(w.shape.rank() == 3 && x.shape[2] == w.shape[2], "w must be [experts, out, in], in the channels of x");
    require(x.dtype == w.dtype, "x and w have different dtypes");
    check_counts(in, 2, w.shape[0]);
    return {TensorType{x.dtype, {1, x.shape[1], w.shape[1]}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    place(axis.inputs[0], axis.inputs[1], axis.inputs[2]);
    axis.outputs = {axis.inputs[0]};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const TensorId x = f.inputs[0], w = f.inputs[1], counts = f.inputs[2], dy = d.gradient(f.outputs[0]);
    if (d.requires_grad(w)) {
      const Attributes attributes{{"dtype", dtype_value(d.gradient_dtype(w))}};
      d.accumulate_grad(w, d.build().emit_one("grouped_linear_weight_grad", {x, dy, counts, d.accumulator(w)}, attributes,
                                              d.program()[w].name + ".grad"));
    }
    if (d.requires_grad(x)) {
      d.accumulate_grad(x, d.build().emit_one("grouped_linear_input_grad", {dy, w, counts}, {}, d.program()[x].name + ".grad"));
    }
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = grouped_flops(program, i, i.inputs[0], i.inputs[1]);
    return cost;
  }
};

class MoeSwigluGrad final : public Grouped {
 public:
  MoeSwigluGrad() : Grouped("moe_swiglu_grad") {}
  const Op* with_amax() const noexcept override {
    static const Op* const op = registry().find("moe_swiglu_grad_amax");
    return op;
  }
  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& gate_up = present(in, 1);
    check_rows(gate_up);
    require(gate_up.shape[2] % 2 == 0, "the channels of gate and up together must be even");
    check_present(in, 0, {gate_up.dtype, {1, gate_up.shape[1], gate_up.shape[2] / 2}});
    check_present(in, 2, {DType::f32, {gate_up.shape[1]}});
    return {gate_up, TensorType{DType::f32, {gate_up.shape[1]}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const bool divided = axis.inputs[1].is_shard(1);
    axis.inputs[0] = axis.inputs[1] = divided ? row_dim : Placement::replicate();
    axis.inputs[2] = divided ? first_dim : Placement::replicate();
    axis.outputs = {axis.inputs[1], axis.inputs[2]};
  }
};

class MoeSwiglu final : public Grouped {
 public:
  MoeSwiglu() : Grouped("moe_swiglu") {}
  const Op* with_amax() const noexcept override {
    static const Op* const op = registry().find("moe_swiglu_amax");
    return op;
  }
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }
  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& gate_up = present(in, 0);
    check_rows(gate_up);
    require(gate_up.shape[2] % 2 == 0, "the channels of gate and up together must be even");
    check_present(in, 1, {DType::f32, {gate_up.shape[1]}});
    return {TensorType{gate_up.dtype, {1, gate_up.shape[1], gate_up.shape[2] / 2}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const bool divided = axis.inputs[0].is_shard(1);
    axis.inputs[0] = divided ? row_dim : Placement::replicate();
    axis.inputs[1] = divided ? first_dim : Placement::replicate();
    axis.outputs = {axis.inputs[0]};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const std::vector<TensorId> grads =
        d.build().emit("moe_swiglu_grad", {d.gradient(f.outputs[0]), f.inputs[0], f.inputs[1]}, {},
                       {d.program()[f.inputs[0]].name + ".grad", d.program()[f.inputs[1]].name + ".grad"});
    d.accumulate_grad(f.inputs[0], grads[0]);
    d.accumulate_grad(f.inputs[1], grads[1]);
  }
};

}  // namespace

void register_grouped_linear(OpRegistry& registry) {
  registry.add(std::make_unique<GroupedLinear>());
  registry.add(std::make_unique<GroupedLinearInputGrad>());
  registry.add(std::make_unique<GroupedLinearWeightGrad>());
  registry.add(std::make_unique<MoeSwiglu>());
  registry.add(std::make_unique<MoeSwigluGrad>());
}

}  // namespace consist::ops
