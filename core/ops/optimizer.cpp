// sum_of_squares, clip_coefficient and adamw (Loshchilov & Hutter, 2019).
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

const TensorType scalar{DType::f32, {}};

class SumOfSquares final : public NamedOp {
 public:
  SumOfSquares() : NamedOp("sum_of_squares") {}

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    require(!in.empty(), "there are no inputs");
    return {scalar};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    for (Placement& input : axis.inputs) {
      if (input.is_partial()) input = Placement::replicate();  // squares of partial sums mean nothing
    }
    const auto is_part = [](Placement placement) { return placement.is_shard() || placement.is_flat(); };
    const bool sharded = is_part(axis.inputs[0]);
    for (Placement input : axis.inputs) {
      require(is_part(input) == sharded,
              "inputs must be all split or all replicated along an axis: the sum would count some twice");
    }
    axis.outputs = {sharded ? Placement::partial() : Placement::replicate()};
  }
};

class ClipCoefficient final : public NamedOp {
 public:
  ClipCoefficient() : NamedOp("clip_coefficient") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check(in, 0, scalar);
    require(attributes.real("max_norm") >= 0, "max_norm must not be negative");
    return {scalar, scalar};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.inputs[0] = Placement::replicate();
    axis.outputs = {Placement::replicate(), Placement::replicate()};
  }
};

/// Inputs: hyper, coefficient, then five per parameter (p, g, master?, m, v); outputs four per parameter (p, master?, m, v).
class AdamW final : public NamedOp {
 public:
  AdamW() : NamedOp("adamw") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check(in, 0, {DType::f32, {4}});
    check(in, 1, scalar);
    require(in.size() > 2 && (in.size() - 2) % 5 == 0, "inputs must be hyper, coefficient and five per parameter");
    for (const char* name : {"beta1", "beta2", "epsilon", "weight_decay"}) attributes.real(name);
    Types out;
    for (std::size_t i = 2; i < in.size(); i += 5) {
      const Shape& shape = present(in, i).shape;
      for (std::size_t j : {i + 1, i + 3, i + 4})
        require(present(in, j).shape == shape, "a gradient or state has another shape than its parameter");
      require(!has(in, i + 2) || in[i + 2]->shape == shape, "a master has another shape than its parameter");
      out.insert(out.end(), {in[i], in[i + 2], in[i + 3], in[i + 4]});
    }
    return out;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    axis.inputs[0] = axis.inputs[1] = Placement::replicate();
    for (std::size_t i = 2; i < in.size(); i += 5) {
      const Placement placement = axis.inputs[i + 3];  // the states lead; they never move
      require(!placement.is_partial(), "an optimizer state cannot be partial");
      for (std::size_t j = i; j < i + 5; ++j) axis.inputs[j] = placement;
      axis.outputs.insert(axis.outputs.end(), 4, placement);
    }
  }
  int updates_in_place(int output) const noexcept override {
    constexpr int input_of_output[4] = {0, 2, 3, 4};
    return 2 + 5 * (output / 4) + input_of_output[output % 4];
  }
};

}  // namespace

void register_optimizer(OpRegistry& registry) {
  registry.add(std::make_unique<SumOfSquares>());
  registry.add(std::make_unique<ClipCoefficient>());
  registry.add(std::make_unique<AdamW>());
}

}  // namespace consist::ops
