// copy, release and empty_like: where bytes lie, and for how long.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

class Copy final : public NamedOp {
 public:
  Copy() : NamedOp("copy") {}

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    check(in, 1, present(in, 0));
    return {present(in, 0)};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    if (has(in, 1)) axis.inputs[1] = axis.inputs[0];
    axis.outputs = {axis.inputs[0]};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    d.contribute(f.inputs[0], d.gradient(f.outputs[0]));
  }
  int updates_in_place(int /*output*/) const noexcept override { return 1; }
};

/// Touches nothing: its inputs' memory is free for others from here on, and not already behind the last instruction that reads
/// it.
class Release final : public NamedOp {
 public:
  Release() : NamedOp("release") {}

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    require(!in.empty(), "there are no inputs");
    return {};
  }
  void shard(AxisSharding& /*axis*/, const Types& /*in*/, const Attributes& /*attributes*/) const override {}
  Cost cost(const Program& /*program*/, const Instruction& /*instruction*/) const override { return {}; }
};

/// Memory for what will be written later; touches nothing either.
class EmptyLike final : public NamedOp {
 public:
  EmptyLike() : NamedOp("empty_like") {}

  Types infer(const Types& in, const Attributes& /*attributes*/) const override { return {present(in, 0)}; }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.outputs = {axis.inputs[0]};
  }
  Cost cost(const Program& /*program*/, const Instruction& /*instruction*/) const override { return {}; }
};

}  // namespace

void register_storage(OpRegistry& registry) {
  registry.add(std::make_unique<Copy>());
  registry.add(std::make_unique<Release>());
  registry.add(std::make_unique<EmptyLike>());
}

}  // namespace consist::ops
