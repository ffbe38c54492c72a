// amax and quantize. Scales are powers of two, and those of the slice that a rank holds, unless they are delayed.
#include "core/ops/fp8_quantize.h"

#include "core/ops/core_ops.h"

namespace consist {

Quantized quantize(Builder& b, TensorId tensor, const QuantizeSettings& settings) {
  const std::string name = b[tensor].name;
  Attributes attributes{{"dtype", std::string(name_of(settings.dtype))}, {"tensor", name}}, amax_attributes;
  if (settings.scaling != Scaling::tensor) attributes.set("scaling", std::string(name_of(settings.scaling)));
  if (settings.once_per_step) {
    attributes.set("once_per_step", std::int64_t{1});
    amax_attributes.set("once_per_step", std::int64_t{1});
  }
  if (settings.before_gathers) attributes.set("before_gathers", std::int64_t{1});
  if (!settings.transposed) attributes.set("transposed", std::int64_t{0});
  std::vector<TensorId> inputs{tensor};
  if (settings.scaling == Scaling::tensor)
    inputs.push_back(b.emit_one("amax", {tensor}, std::move(amax_attributes), name + ".amax"));
  if (settings.scaling == Scaling::delayed) {
    const std::string state = settings.history.of + ".amax_history";
    const TensorId known = b.program().find(state);
    inputs.push_back(known != no_tensor ? known : b.state(state, DType::f32, {1 + settings.history.length}, {}, StateKind::discardable));
  }
  b.emit(
      "quantize", std::move(inputs), std::move(attributes),
      {name + ".fp8", name + ".fp8t", name + ".descale", name + (settings.scaling == Scaling::delayed ? ".amax" : ".descale_t")});
  return quantized(b.program().instructions.back());
}

Quantized quantized(const Instruction& quantize) {
  const std::vector<TensorId>& made = quantize.outputs;
  const bool own = has_transposed_scales(scaling_of(quantize.attributes));
  return {made[0], made[1], made[2], own ? made[3] : made[2]};
}

namespace ops {

Shape transposed(const Shape& shape) {
  Shape turned{shape.last()};
  for (int i = 0; i + 1 < shape.rank(); ++i) turned.push_back(shape[i]);
  return turned;
}

Placement transposed(Placement placement, int rank) {
  if (!placement.is_shard()) return placement;
  return Placement::shard(placement.dim() == rank - 1 ? 0 : placement.dim() + 1);
}

namespace {

/// A summand or a flat slice cannot be quantized with its transpose.
void whole_or_shard(Placement& placement) {
  if (placement.is_partial() || placement.is_flat()) placement = Placement::replicate();
}

/// The placement of the scales of a tensor that is sharded along `dim` of `rank`. Where it says "own", each rank has the scales
/// of its own slice in the unsharded tensor's shape, and uses those that its slice needs.
constexpr Placement own = Placement::replicate();

Placement scales_placement(Scaling scaling, Placement x, int rank) {
  if (!x.is_shard() || x.dim() == rank - 1) return own;
  if (scaling == Scaling::row) return x;
  return scaling == Scaling::block_1d ? Placement::shard(x.dim() + 1) : own;
}

Placement transposed_scales_placement(Scaling scaling, Placement x, int rank) {
  if (!x.is_shard()) return own;
  const bool last = x.dim() == rank - 1;
  if (scaling == Scaling::row) return last ? Placement::shard(0) : own;
  return scaling == Scaling::block_1d && (last || x.is_shard(0)) ? x : own;
}

class Amax final : public NamedOp {
 public:
  Amax() : NamedOp("amax") {}
  bool states_amax() const noexcept override { return true; }

  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    present(in, 0);
    return {TensorType{DType::f32, {}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    if (axis.inputs[0].is_partial()) axis.inputs[0] = Placement::replicate();
    axis.outputs = {Placement::replicate()};  // each rank's own
  }
};

class Quantize final : public NamedOp {
 public:
  Quantize() : NamedOp("quantize") {}
  bool quantizes() const noexcept override { return true; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& x = present(in, 0);
    const Scaling scaling = scaling_of(attributes);
    const DType type = dtype_attribute(attributes);
    attributes.string("tensor");
    require(is_float8(type), "attribute 'dtype' must be e4m3 or e5m2");
    Types made{TensorType{type, x.shape}, TensorType{type, transposed(x.shape)}, scalar};
    if (attributes.integer_or("transposed", 1) == 0) {
      require(!has_transposed_scales(scaling), "a copy with scales of its own is always made");
      made[1] = std::nullopt;
    }
    if (scaling == Scaling::tensor) {
      require(x.shape.rank() >= 1, "x must not be a scalar");
      present(in, 1);
      check(in, 1, scalar);
      return made;
    }
    if (scaling == Scaling::delayed) {
      require(present(in, 1).dtype == DType::f32 && in[1]->shape.rank() == 1, "the history must be f32[1 + length]");
      made.emplace_back(scalar);
      return made;
    }
    require(x.shape.rank() == (scaling == Scaling::block_1d ? 3 : 2) || (scaling == Scaling::row && x.shape.rank() == 3),
            "x must be [batch, sequence, channels], or [rows, columns] if its blocks are squares");
    require(!has(in, 1), "scales of rows and blocks come from x alone");
    made[2] = TensorType{DType::f32, scales(scaling, x.shape)};
    made.emplace_back(TensorType{DType::f32, transposed_scales(scaling, x.shape)});
    return made;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    Placement& x = axis.inputs[0];
    const int rank = in[0]->shape.rank();
    const Scaling scaling = scaling_of(attributes);
    whole_or_shard(x);
    if (axis.inputs.size() > 1) axis.inputs[1] = Placement::replicate();
    axis.outputs = {x, transposed(x, rank)};
    if (!has_transposed_scales(scaling)) {
      axis.outputs.resize(scaling == Scaling::delayed ? 4 : 3, own);
    } else {
      axis.outputs.push_back(scales_placement(scaling, x, rank));
      axis.outputs.push_back(transposed_scales_placement(scaling, x, rank));
    }
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    // Rounding passes the gradient through.
    const TensorId dy = d.gradient(f.outputs[0]);
    if (dy != no_tensor) d.accumulate_grad(f.inputs[0], dy);
  }
};

}  // namespace

Shape scales(Scaling scaling, const Shape& x) {
  if (scaling == Scaling::block_1d) return {scale_blocks(x[2]), x[0], x[1]};
  if (scaling == Scaling::block_2d) return {scale_blocks(x[0]), square_stride(x[1])};
  if (scaling != Scaling::row) return {};
  return x.rank() == 2 ? Shape{x[0]} : Shape{x[0], x[1]};
}

Shape transposed_scales(Scaling scaling, const Shape& x) {
  // Sequences that are no multiple of a block's length have more blocks than their tokens, which lie side by side, need.
  if (scaling == Scaling::block_1d) return {x[0], scale_blocks(x[1]), x[2]};
  if (scaling == Scaling::block_2d) return {scale_blocks(x[1]), square_stride(x[0])};
  return scaling == Scaling::row ? Shape{x.last()} : Shape{};
}

QuantizedSource quantized_source(const Op& op, const Differentiator& d, TensorId value) {
  const InstructionId producer = d.producer(value);
  if (producer >= 0) {
    const Instruction& i = d.program().instructions[static_cast<std::size_t>(producer)];
    if (i.op->quantizes()) return {i.inputs[0], quantized(i)};
  }
  throw ProgramError("op '" + std::string(op.name()) + "': '" + d.program()[value].name +
                     "' was not made by quantize, so that it has no gradient");
}

QuantizeSettings gradient_settings(const Instruction& forward, const std::string& weight) {
  QuantizeSettings settings{.dtype = *dtype_of(forward.attributes.string("gradients"))};
  settings.scaling = operand_scalings("fp8_linear_input_grad", forward.attributes).a;
  settings.before_gathers = forward.attributes.integer_or("before_gathers", 0) != 0;
  if (forward.attributes.has("history")) {
    settings.scaling = Scaling::delayed;
    settings.history = {weight + ".grad_output", forward.attributes.integer("history")};
  }
  return settings;
}

TensorId gradient_as_placed(Differentiator& d, TensorId y) {
  TensorId dy = d.gradient(y);
  for (int axis = 0; axis < d.program().mesh.axes(); ++axis) {
    const Placement placement = d.program()[y].placements[axis];
    dy = d.build().reshard(dy, axis, placement.is_partial() ? Placement::replicate() : placement);
  }
  return dy;
}

void register_fp8_quantize(OpRegistry& registry) {
  registry.add(std::make_unique<Amax>());
  registry.add(std::make_unique<Quantize>());
}

}  // namespace ops
}  // namespace consist
