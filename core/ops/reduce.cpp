// reduce: an expression of the elements of its inputs (consist/expression.h), added up over the channels of each row, or the
// largest, or the logarithm of the sum of exponentials. map reads the result as a[r]. total: added up over all elements. margins:
// added up over each row, and over each column.
#include "core/ops/expression_op.h"

namespace consist::ops {
namespace {

/// Attribute "by": "sum", "max" or "logsumexp". The result is f32, or of attribute "dtype", with one channel; with attribute
/// "squeeze" it is without the dimension of channels.
class Reduce final : public ExpressionOp {
 public:
  Reduce() : ExpressionOp("reduce") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    Shape shape = checked_shape(in, f, attributes);
    require(shape.rank() > 0, "a scalar has no channels");
    require_one_result(f);
    const std::string& by = attributes.string("by");
    if (by != "sum" && by != "max" && by != "logsumexp") fail("attribute 'by' is '" + by + "', it must be sum, max or logsumexp");
    shape[shape.rank() - 1] = 1;
    if (attributes.integer_or("squeeze", 0) != 0) {
      require(shape.rank() > 1, "rows of one dimension have no other: leave 'squeeze' out");
      shape = without_last(shape);
    }
    const DType dtype = attributes.has("dtype") ? dtype_attribute(attributes) : DType::f32;
    require(dtype == DType::f32 || dtype == DType::bf16, "attribute 'dtype' must be f32 or bf16");
    return {TensorType{dtype, shape}};
  }

  /// Where channels are sharded each rank has a summand. The others need all of a row.
  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    const bool sums = attributes.string("by") == "sum";
    if (sums && keeps_summands(axis, f)) {
      axis.outputs = {Placement::partial()};
      return;
    }
    const int last = rank_of(in, f, attributes) - 1;
    Placement placement = placement_of(axis, f, attributes, last);
    if (placement.is_flat() || (placement.is_shard(last) && !sums)) placement = Placement::replicate();
    place_inputs(axis, f, placement, last);
    axis.outputs = {placement.is_shard(last) ? Placement::partial() : placement};
  }

  void differentiate(Differentiator& d, const Instruction& i) const override {
    const std::string& by = i.attributes.string("by");
    if (by != "max") return differentiate_by_inputs(d, i, Reads::row);
    const Expressions f = expressions(i.attributes);
    if (i.inputs.size() != 1 || f.multiple_of(0) != 1.0)
      fail("the largest '" + f.text() + "' has no gradient: map the expression first, and take the largest of its result");
    // Each of several largest ones gets the gradient, as for max of an expression the first argument does.
    const Tensor& x = d.program()[i.inputs[0]];
    d.accumulate_grad(i.inputs[0], d.build().emit_one("map", {i.inputs[0], i.outputs[0], d.gradient(i.outputs[0])},
                                                      {{"f", std::string("select(b[r]-a,0,c[r])")}}, x.name + ".grad"));
  }

 protected:
  bool is_logarithm_of_exponentials(const Attributes& attributes) const override {
    return attributes.string("by") == "logsumexp";
  }
};

/// One f32 scalar. It may be the loss that is trained on.
class Total final : public ExpressionOp {
 public:
  Total() : ExpressionOp("total") {}
  Separable separable() const noexcept override { return Separable::no; }
  bool takes_strided_view(int /*input*/) const noexcept override { return false; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    require(!attributes.has("columns"), "there are no elements of rows alone");
    checked_shape(in, f, attributes);
    require_one_result(f);
    for (std::size_t k = 0; k < in.size(); ++k) {
      const Reads how = reads(f, k);
      if (how == Reads::row || how == Reads::channel)
        fail("'" + f.text() + "' reads " + letter_of(k) + " by rows or channels: map it first, and take the total of the result");
    }
    require(!f.reads_channel(), "the total is over all channels: map what depends on their number first");
    return {scalar};
  }

  /// Each rank has the summand of its elements.
  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    if (keeps_summands(axis, f)) {
      axis.outputs = {Placement::partial()};
      return;
    }
    const int last = rank_of(in, f, attributes) - 1;
    const Placement placement = placement_of(axis, f, attributes, last);
    place_inputs(axis, f, placement, last);
    axis.outputs = {placement.is_replicate() ? placement : Placement::partial()};
  }

  void differentiate(Differentiator& d, const Instruction& i) const override { differentiate_by_inputs(d, i, Reads::element); }
};

/// The sums over the channels of each row, and those over all rows for each channel: f32, without the dimension that is summed
/// over. With attribute "columns_only" the former are absent.
class Margins final : public ExpressionOp {
 public:
  Margins() : ExpressionOp("margins") {}
  Separable separable() const noexcept override { return Separable::no; }
  bool takes_strided_view(int /*input*/) const noexcept override { return false; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    require(!attributes.has("columns"), "there are no elements of rows alone");
    const Shape shape = checked_shape(in, f, attributes);
    require(shape.rank() > 1, "a vector has no rows: take its total");
    require_one_result(f);
    require(!f.reads_channel(), "the number of a channel is that of a slice: map what depends on it first");
    Types made{std::nullopt, TensorType{DType::f32, {shape.last()}}};
    if (attributes.integer_or("columns_only", 0) == 0) made[0] = TensorType{DType::f32, without_last(shape)};
    return made;
  }

  /// Each rank has the summands of its elements, whatever part of the matrix they are.
  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    const int last = rank_of(in, f, attributes) - 1;
    const Placement whole = parts_of(axis, f, Reads::same);
    place_inputs(axis, f, whole, last);
    const Placement rows = whole.is_flat() || whole.is_shard(last) ? Placement::partial() : whole,
                    columns = whole.is_shard(last)   ? Placement::shard(0)
                              : whole.is_replicate() ? whole
                                                     : Placement::partial();
    axis.outputs = {rows, columns};
  }
};

}  // namespace

void register_reduce(OpRegistry& registry) {
  registry.add(std::make_unique<Total>());
  registry.add(std::make_unique<Margins>());
  registry.add(std::make_unique<Reduce>());
}

}  // namespace consist::ops
