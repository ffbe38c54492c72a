// reduce: an expression of the elements of its inputs (consist/expression.h), added up over the channels of each row, or the
// largest. map reads the result as a[r].
#include "core/ops/expression_op.h"

namespace consist::ops {
namespace {

/// Attribute "by": "sum" or "max". The result is f32, or of attribute "dtype".
class Reduce final : public ExpressionOp {
 public:
  Reduce() : ExpressionOp("reduce") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    Shape shape = checked_shape(in, f, attributes);
    require(shape.rank() > 0, "a scalar has no channels");
    if (f.results().size() != 1)
      fail("'" + f.text() + "' has " + std::to_string(f.results().size()) + " results, it must have one");
    const std::string& by = attributes.string("by");
    if (by != "sum" && by != "max") fail("attribute 'by' is '" + by + "', it must be sum or max");
    shape[shape.rank() - 1] = 1;
    const DType dtype = attributes.has("dtype") ? dtype_attribute(attributes) : DType::f32;
    require(dtype == DType::f32 || dtype == DType::bf16, "attribute 'dtype' must be f32 or bf16");
    return {TensorType{dtype, shape}};
  }

  /// Where channels are sharded each rank has a summand. The largest needs all of a row.
  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    const bool sums = attributes.string("by") == "sum";
    if (sums && keeps_summands(axis, f)) {
      axis.outputs = {Placement::partial()};
      return;
    }
    const int last = in[leading_input(f, attributes)]->shape.rank() - 1;
    Placement placement = placement_of(axis, f, attributes, last);
    if (placement.is_flat() || (placement.is_shard(last) && !sums)) placement = Placement::replicate();
    place_inputs(axis, f, placement, last);
    axis.outputs = {placement.is_shard(last) ? Placement::partial() : placement};
  }

  void differentiate(Differentiator& d, const Instruction& i) const override {
    if (i.attributes.string("by") == "sum") return differentiate_by_inputs(d, i, Reads::row);
    const Expressions f = expressions(i.attributes);
    if (i.inputs.size() != 1 || f.multiple_of(0) != 1.0)
      fail("the largest '" + f.text() + "' has no gradient: map the expression first, and take the largest of its result");
    // Each of several largest ones gets the gradient, as for max of an expression the first argument does.
    const Tensor& x = d.program()[i.inputs[0]];
    d.accumulate_grad(i.inputs[0], d.build().emit_one("map", {i.inputs[0], i.outputs[0], d.gradient(i.outputs[0])},
                                                      {{"f", std::string("select(b[r]-a,0,c[r])")}}, x.name + ".grad"));
  }
};

}  // namespace

void register_reduce(OpRegistry& registry) {
  registry.add(std::make_unique<Reduce>());
}

}  // namespace consist::ops
