// Products of experts' rows in 8-bit floats: fp8_grouped_linear and its gradient of rows. The gradient of the experts' weights is
// a sum over an expert's rows, which begin anywhere, while tensor cores take 8-bit operands along the summed dimension and copies
// of them in steps of 16 bytes. So it is the bf16 op, of the tensors before they were quantized.
#include "core/ops/core_ops.h"
#include "core/ops/fp8_quantize.h"

namespace consist::ops {
namespace {

constexpr const char* rows_moved =
    "its rows or weights are split otherwise than the experts; a quantized tensor does not move between ranks, since each has a "
    "scale of its own";

/// Inputs: rows [1, rows, summed], descale, weights, descale, counts. `experts_dim`: the dimension of weights that runs over
/// experts.
class Fp8Grouped : public NamedOp {
 public:
  Fp8Grouped(std::string name, int experts_dim) : NamedOp(std::move(name)), experts_dim_(experts_dim) {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType &rows = present(in, 0), &weights = present(in, 2);
    require(is_float8(rows.dtype) && is_float8(weights.dtype), "operands must be e4m3 or e5m2");
    require(weights.dtype == DType::e4m3, "weights must be e4m3");
    require(rows.shape.rank() == 3 && rows.shape[0] == 1, "rows must be [1, rows, channels]");
    require(weights.shape.rank() == 3 && rows.shape[2] == weights.shape[2], shapes());
    require(!attributes.has("scaling") || attributes.string("scaling") == name_of(Scaling::delayed),
            "experts' rows and weights have one scale each: 'scaling' is absent or delayed");
    for (const std::size_t descale : {std::size_t{1}, std::size_t{3}}) check_present(in, descale, {DType::f32, {}});
    check_present(in, 4, {DType::i32, {weights.shape[experts_dim_]}});
    return {TensorType{dtype_attribute(attributes), {1, rows.shape[1], weights.shape[experts_dim_ == 0 ? 1 : 0]}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const Placement rows = axis.inputs[0], weights = axis.inputs[2];
    Placement& counts = axis.inputs[4];
    if (weights == Placement::shard(experts_dim_)) {
      require(rows == row_dim, rows_moved);
      counts = first_dim;
    } else {
      require(weights.is_replicate() && (rows.is_replicate() || rows == row_dim), rows_moved);
      counts = rows == row_dim ? Placement::partial() : Placement::replicate();  // each rank's own, of its own tokens
    }
    axis.outputs = {rows};
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = 2.0 * rows_in_use(i) * static_cast<double>(program.local(i.inputs[0]).elements()) *
                 static_cast<double>(program.local(i.outputs[0]).last());
    return cost;
  }

 protected:
  virtual const char* shapes() const = 0;

 private:
  int experts_dim_;
};

class Fp8GroupedLinearInputGrad final : public Fp8Grouped {
 public:
  Fp8GroupedLinearInputGrad() : Fp8Grouped("fp8_grouped_linear_input_grad", 1) {}

 private:
  const char* shapes() const override { return "wt must be [in, experts, out], out the channels of dy"; }
};

class Fp8GroupedLinear final : public Fp8Grouped {
 public:
  Fp8GroupedLinear() : Fp8Grouped("fp8_grouped_linear", 0) {}
  int expert_weights() const noexcept override { return 2; }
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }

  void differentiate(Differentiator& d, const Instruction& forward) const override {
    const QuantizedSource x = quantized_source(*this, d, forward.inputs[0]), w = quantized_source(*this, d, forward.inputs[2]);
    const TensorId counts = forward.inputs[4], dy = gradient_as_placed(d, forward.outputs[0]);
    Builder& b = d.build();
    if (d.requires_grad(w.made.value)) {
      const Attributes attributes{{"dtype", dtype_value(d.gradient_dtype(w.tensor))}};
      d.accumulate_grad(w.made.value,
                        b.emit_one("grouped_linear_weight_grad", {x.tensor, dy, counts, d.accumulator(w.made.value)}, attributes,
                                   d.program()[w.tensor].name + ".grad"));
    }
    if (!d.requires_grad(x.made.value)) return;
    QuantizeSettings settings = gradient_settings(forward, d.program()[w.tensor].name);
    settings.transposed = false;
    const Quantized g = quantize(b, dy, settings);
    const bool fast = forward.attributes.integer("fast_gradients") != 0;
    Attributes attributes{{"dtype", dtype_value(d.program()[forward.outputs[0]].dtype)},
                          {"fast_accumulation", std::int64_t{fast ? 1 : 0}}};
    if (forward.attributes.has("scaling")) attributes.set("scaling", forward.attributes.string("scaling"));
    d.accumulate_grad(x.made.value,
                      b.emit_one("fp8_grouped_linear_input_grad", {g.value, g.descale, w.made.transposed, w.made.descale, counts},
                                 std::move(attributes), d.program()[x.tensor].name + ".grad"));
  }

 private:
  const char* shapes() const override { return "w must be [experts, out, in], in the channels of x"; }
};

}  // namespace

void register_fp8_grouped(OpRegistry& registry) {
  registry.add(std::make_unique<Fp8GroupedLinear>());
  registry.add(std::make_unique<Fp8GroupedLinearInputGrad>());
}

}  // namespace consist::ops
