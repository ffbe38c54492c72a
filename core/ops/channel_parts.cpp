// split_channels and merge_channels: slices of the channels, each contiguous, and back. An all_to_all from tokens to channels
// sends such slices as few large messages.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

// Dimensions of the slices [slices, batch, sequence, channels of a slice].
constexpr int of_parts = 0;

class ChannelParts : public NamedOp {
 public:
  using NamedOp::NamedOp;

 protected:
  static Shape split(const Shape& x, std::int64_t parts) { return {parts, x[0], x[1], x[2] / parts}; }
  static Shape merged(const Shape& parts) { return {parts[1], parts[2], parts[0] * parts[3]}; }
};

class SplitChannels final : public ChannelParts {
 public:
  SplitChannels() : ChannelParts("split_channels") {}
  bool is_additive() const noexcept override { return true; }
  bool takes_strided_view(int /*input*/) const noexcept override { return true; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 0);
    const std::int64_t parts = attributes.integer("parts");
    require(x.shape.rank() == 3 && parts > 0 && x.shape[channels] % parts == 0,
            "x must be [batch, sequence, channels] whose channels are so many equal parts");
    return {TensorType{x.dtype, split(x.shape, parts)}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    Placement& x = axis.inputs[0];
    if (x.is_flat()) x = Placement::replicate();
    axis.outputs = {x.is_shard(channels) ? Placement::shard(of_parts) : x.is_shard() ? Placement::shard(x.dim() + 1) : x};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const TensorId x = f.inputs[0];
    d.accumulate_grad(x, d.build().emit_one("merge_channels", {d.gradient(f.outputs[0])}, {}, d.program()[x].name + ".grad"));
  }
};

class MergeChannels final : public ChannelParts {
 public:
  MergeChannels() : ChannelParts("merge_channels") {}
  bool is_additive() const noexcept override { return true; }
  bool makes_strided_view(int /*output*/) const noexcept override { return true; }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& x = present(in, 0);
    require(x.shape.rank() == 4, "x must be [parts, batch, sequence, channels of a part]");
    return {TensorType{x.dtype, merged(x.shape)}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    Placement& x = axis.inputs[0];
    if (x.is_flat() || x.is_shard(3)) x = Placement::replicate();
    axis.outputs = {x.is_shard(of_parts) ? Placement::shard(channels) : x.is_shard() ? Placement::shard(x.dim() - 1) : x};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const Tensor& x = d.program()[f.inputs[0]];
    const Attributes attributes{{"parts", x.shape[of_parts]}};
    const std::string name = x.name + ".grad";
    d.accumulate_grad(f.inputs[0], d.build().emit_one("split_channels", {d.gradient(f.outputs[0])}, attributes, name));
  }
};

}  // namespace

void register_channel_parts(OpRegistry& registry) {
  registry.add(std::make_unique<SplitChannels>());
  registry.add(std::make_unique<MergeChannels>());
}

}  // namespace consist::ops
