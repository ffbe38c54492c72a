// copy, release, empty_like, views and join: the places of bytes, their lifetimes and names.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

class Copy final : public NamedOp {
 public:
  Copy() : NamedOp("copy") {}
  bool passes_parameters_on() const noexcept override { return true; }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    check(in, 1, present(in, 0));
    return {present(in, 0)};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    if (has(in, 1)) axis.inputs[1] = axis.inputs[0];
    axis.outputs = {axis.inputs[0]};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    d.accumulate_grad(f.inputs[0], d.gradient(f.outputs[0]));
  }
  int updates_in_place(int /*output*/) const noexcept override { return 1; }
  bool takes_strided_view(int input) const noexcept override { return input == 0; }
  bool makes_strided_view(int /*output*/) const noexcept override { return true; }
};

/// Frees its inputs' memory for others from here on, and not already behind the last instruction that reads
/// it.
class Release final : public NamedOp {
 public:
  Release() : NamedOp("release") {}
  bool touches_memory() const noexcept override { return false; }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    require(!in.empty(), "there are no inputs");
    return {};
  }
  void shard(AxisSharding& /*axis*/, const Types& /*in*/, const Attributes& /*attributes*/) const override {}
  Cost cost(const Program& /*program*/, const Instruction& /*instruction*/) const override { return {}; }
};

/// Memory that is written later.
class EmptyLike final : public NamedOp {
 public:
  EmptyLike() : NamedOp("empty_like") {}
  bool touches_memory() const noexcept override { return false; }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override { return {present(in, 0)}; }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.outputs = {axis.inputs[0]};
  }
  Cost cost(const Program& /*program*/, const Instruction& /*instruction*/) const override { return {}; }
};

/// The input as equal slices along attribute "dim", each a tensor of its own in the input's memory: nothing is moved. The emitter
/// sets the slices' offsets; a rank must hold each slice contiguously. The input itself must not be read any more.
class Views final : public NamedOp {
 public:
  Views() : NamedOp("views") {}
  bool touches_memory() const noexcept override { return false; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    TensorType part = present(in, 0);
    const std::int64_t dim = attributes.integer("dim"), parts = attributes.integer("parts");
    require(dim >= 0 && dim < part.shape.rank() && parts > 0, "there is no such dimension, or no parts");
    require(part.shape[static_cast<int>(dim)] % parts == 0, "the parts must divide the dimension");
    part.shape[static_cast<int>(dim)] /= parts;
    return Types(static_cast<std::size_t>(parts), part);
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    axis.outputs.assign(static_cast<std::size_t>(attributes.integer("parts")), axis.inputs[0]);
  }
  int updates_in_place(int /*output*/) const noexcept override { return 0; }
  Cost cost(const Program& /*program*/, const Instruction& /*instruction*/) const override { return {}; }
};

/// The reverse: slices that lie side by side as one tensor.
class Join final : public NamedOp {
 public:
  Join() : NamedOp("join") {}
  bool touches_memory() const noexcept override { return false; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    TensorType whole = present(in, 0);
    const auto dim = static_cast<int>(attributes.integer("dim"));
    require(dim >= 0 && dim < whole.shape.rank(), "there is no such dimension");
    for (std::size_t i = 1; i < in.size(); ++i) {
      present(in, i);
      check(in, i, *in[0]);
    }
    whole.shape[dim] *= static_cast<std::int64_t>(in.size());
    return {whole};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    for (Placement& input : axis.inputs) input = axis.inputs[0];
    axis.outputs = {axis.inputs[0]};
  }
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }
  /// Slices of the gradient, in its memory: the unsliced gradient must not be read any more.
  void differentiate(Differentiator& d, const Instruction& f) const override {
    std::vector<std::string> names;
    for (TensorId part : f.inputs) names.push_back(d.program()[part].name + ".grad");
    Builder& build = d.build();
    const std::vector<TensorId> parts =
        build.emit("views", {d.gradient(f.outputs[0])},
                   {{"dim", f.attributes.integer("dim")}, {"parts", static_cast<std::int64_t>(f.inputs.size())}}, names);
    std::int64_t offset = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      build.program()[parts[k]].offset += offset;
      offset += build.program().bytes(parts[k]);
      d.accumulate_grad(f.inputs[k], parts[k]);
    }
  }
  int updates_in_place(int /*output*/) const noexcept override { return 0; }
  Cost cost(const Program& /*program*/, const Instruction& /*instruction*/) const override { return {}; }
};

}  // namespace

void register_storage(OpRegistry& registry) {
  registry.add(std::make_unique<Copy>());
  registry.add(std::make_unique<Release>());
  registry.add(std::make_unique<EmptyLike>());
  registry.add(std::make_unique<Views>());
  registry.add(std::make_unique<Join>());
}

}  // namespace consist::ops
