// Targets that a loss counts where the data have a mask: masked_targets ignores the others, count_targets counts those that are
// left, per_target makes means of sums over all targets.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

Placement tokens_of(const AxisSharding& axis) {
  return over_tokens(axis.inputs[0]) ? axis.inputs[0] : Placement::replicate();
}

class MaskedTargets final : public NamedOp {
 public:
  MaskedTargets() : NamedOp("masked_targets") {}
  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& targets = present(in, 0);
    require(targets.dtype == DType::i32 && targets.shape.rank() == 2, "targets must be i32[batch, sequence]");
    check_present(in, 1, targets);
    return {targets};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const Placement tokens = tokens_of(axis);
    axis.inputs = {tokens, tokens};
    axis.outputs = {tokens};
  }
};

class CountTargets final : public NamedOp {
 public:
  CountTargets() : NamedOp("count_targets") {}
  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    require(present(in, 0).dtype == DType::i32, "targets must be i32");
    return {scalar};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.inputs[0] = tokens_of(axis);
    axis.outputs = {summed_over_tokens(axis.inputs[0])};
  }
};

class PerTarget final : public NamedOp {
 public:
  PerTarget() : NamedOp("per_target") {}
  Types infer(const Types& in, const Attributes& attributes) const override {
    check_present(in, 0, scalar);
    check_present(in, 1, scalar);
    const std::int64_t power = attributes.integer("power");
    require(attributes.real("targets") > 0 && (power == 1 || power == 2), "targets must be positive, power 1 or 2");
    return {scalar};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.inputs[0] = axis.inputs[1] = Placement::replicate();
    axis.outputs = {Placement::replicate()};
  }
};

}  // namespace

void register_targets(OpRegistry& registry) {
  registry.add(std::make_unique<MaskedTargets>());
  registry.add(std::make_unique<CountTargets>());
  registry.add(std::make_unique<PerTarget>());
}

}  // namespace consist::ops
