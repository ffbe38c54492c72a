// sum_of_squares, clip_coefficient and the updates of single elements: adamw (Loshchilov & Hutter, 2019), sgd (with the momentum of
// Sutskever et al., 2013), lion (Chen et al., 2023).
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

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
    check_present(in, 0, scalar);
    require(attributes.real("max_norm") >= 0, "max_norm must not be negative");
    return {scalar, scalar};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.inputs[0] = Placement::replicate();
    axis.outputs = {Placement::replicate(), Placement::replicate()};
  }
};

/// Makes the update of a step with an overflow change nothing: see docs/ops.md.
class HoldUpdate final : public NamedOp {
 public:
  HoldUpdate() : NamedOp("hold_update") {}

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& scalars = present(in, 0);
    require(scalars.dtype == DType::f32 && scalars.shape.rank() == 1 && scalars.shape[0] > 0, "the scalars must be f32[n]");
    check_present(in, 1, scalar);
    check_present(in, 2, scalar);
    return {scalars, scalar};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    for (Placement& input : axis.inputs) input = Placement::replicate();
    axis.outputs = {Placement::replicate(), Placement::replicate()};
  }
};

/// See Op::states_per_update().
class ParameterUpdate : public NamedOp {
 public:
  ParameterUpdate(std::string name, std::int64_t scalars, int states, std::vector<const char*> constants)
      : NamedOp(std::move(name)), scalars_(scalars), states_(static_cast<std::size_t>(states)), constants_(std::move(constants)) {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check_present(in, 0, {DType::f32, {scalars_}});
    check_present(in, 1, scalar);
    require(in.size() > 2 && (in.size() - 2) % stride() == 0, "inputs must be scalars, clip, and some for each parameter");
    for (const char* name : constants_) attributes.real(name);
    Types out;
    for (std::size_t p = 2; p < in.size(); p += stride()) {
      const Shape& shape = present(in, p).shape;
      require(present(in, p + 1).shape == shape, "a gradient has another shape than its parameter");
      for (std::size_t i = p + 2; i < p + stride(); ++i)
        require(!has(in, i) || in[i]->shape == shape, "a master or state has another shape than its parameter");
      out.push_back(in[p]);
      out.insert(out.end(), in.begin() + static_cast<std::ptrdiff_t>(p + 2), in.begin() + static_cast<std::ptrdiff_t>(p + stride()));
    }
    return out;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    axis.inputs[0] = axis.inputs[1] = Placement::replicate();
    for (std::size_t p = 2; p < in.size(); p += stride()) {
      const Placement placement = axis.inputs[leading(in, p)];
      require(!placement.is_partial(), "neither a state nor a gradient without one can be partial");
      for (std::size_t i = p; i < p + stride(); ++i) axis.inputs[i] = placement;
      axis.outputs.insert(axis.outputs.end(), stride() - 1, placement);
    }
  }
  int updates_in_place(int output) const noexcept override {
    const int each = static_cast<int>(stride()), of = output / (each - 1), which = output % (each - 1);
    return 2 + each * of + (which == 0 ? 0 : which + 1);
  }
  int states_per_update() const noexcept override { return static_cast<int>(states_); }

 private:
  std::size_t stride() const noexcept { return 3 + states_; }
  /// The tensor of a parameter whose placement the others take: a state, since states never move; without any the gradient.
  std::size_t leading(const Types& in, std::size_t p) const {
    for (std::size_t i = p + stride() - 1; i > p + 1; --i) {
      if (has(in, i)) return i;
    }
    return p + 1;
  }

  std::int64_t scalars_;
  std::size_t states_;
  std::vector<const char*> constants_;
};

}  // namespace

void register_optimizer(OpRegistry& registry) {
  registry.add(std::make_unique<SumOfSquares>());
  registry.add(std::make_unique<ClipCoefficient>());
  registry.add(std::make_unique<HoldUpdate>());
  registry.add(std::make_unique<ParameterUpdate>("adamw", 4, 2, std::vector{"beta1", "beta2", "epsilon", "weight_decay"}));
  registry.add(std::make_unique<ParameterUpdate>("sgd", 2, 1, std::vector{"momentum", "weight_decay"}));
  registry.add(std::make_unique<ParameterUpdate>("lion", 2, 1, std::vector{"beta1", "beta2", "weight_decay"}));
}

}  // namespace consist::ops
