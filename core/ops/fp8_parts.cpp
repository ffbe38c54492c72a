// Quantizing the slices of a tensor before they are gathered, so that they are sent as 8-bit values: one scale for all slices,
// from the largest magnitude that any rank found in its own.
#include "core/ops/core_ops.h"
#include "core/ops/fp8_quantize.h"

namespace consist::ops {
namespace {

/// The scalars of all ranks of the axes in attribute "axis" as one tensor with a row per rank.
class RankValues final : public NamedOp {
 public:
  RankValues() : NamedOp("rank_values") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    require(!in.empty(), "there are no inputs");
    for (std::size_t i = 0; i < in.size(); ++i) {
      present(in, i);
      check(in, i, {DType::f32, {}});
    }
    attributes.axes("axis");
    return {TensorType{DType::f32, {attributes.integer("ranks"), static_cast<std::int64_t>(in.size())}}};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    axis.inputs.assign(in.size(), Placement::replicate());
    axis.outputs = {attributes.axes("axis").contains(axis.axis) ? Placement::shard(0) : Placement::replicate()};
  }
};

/// Quantizes without the transposed copy, which a slice does not have.
class QuantizePart final : public NamedOp {
 public:
  QuantizePart() : NamedOp("quantize_part") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType &x = present(in, 0), &amaxes = present(in, 1);
    const std::int64_t column = attributes.integer("column");
    attributes.string("tensor");
    require(amaxes.dtype == DType::f32 && amaxes.shape.rank() == 2, "amaxes must be f32 [ranks, tensors]");
    require(column >= 0 && column < amaxes.shape[1], "attribute 'column' is not one of the amaxes'");
    const DType type = dtype_attribute(attributes);
    require(is_float8(type), "attribute 'dtype' must be e4m3 or e5m2");
    return {TensorType{type, x.shape}, TensorType{DType::f32, {}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    if (axis.inputs[0].is_partial()) axis.inputs[0] = Placement::replicate();
    axis.inputs[1] = Placement::replicate();
    axis.outputs = {axis.inputs[0], Placement::replicate()};
  }
};

class Transpose final : public NamedOp {
 public:
  Transpose() : NamedOp("transpose") {}

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& x = present(in, 0);
    require(is_float8(x.dtype) && x.shape.rank() >= 1, "x must be a tensor of e4m3 or e5m2");
    return {TensorType{x.dtype, transposed(x.shape)}};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    if (!axis.inputs[0].is_shard()) axis.inputs[0] = Placement::replicate();
    axis.outputs = {transposed(axis.inputs[0], in[0]->shape.rank())};
  }
};

}  // namespace

void register_fp8_parts(OpRegistry& registry) {
  registry.add(std::make_unique<RankValues>());
  registry.add(std::make_unique<QuantizePart>());
  registry.add(std::make_unique<Transpose>());
}

}  // namespace consist::ops
