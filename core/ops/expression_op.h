// Base of the ops of expressions (consist/expression.h): map, with a result for each element, reduce, with one for each row, and
// others that read elements so.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "consist/expression.h"
#include "core/base/index.h"
#include "core/ops/core_ops.h"

namespace consist::ops {

/// Attributes: "f", the expressions; "columns", the channels of rows where no input has them, as in the gradient of a sum, with
/// "rank", the dimensions that the elements then have if the first input of rows is without the last of them.
class ExpressionOp : public NamedOp {
 public:
  using NamedOp::NamedOp;
  Separable separable() const noexcept override { return Separable::tokens; }
  bool takes_strided_view(int /*input*/) const noexcept override { return true; }

 protected:
  static Expressions expressions(const Attributes& attributes) { return Expressions::parse(attributes.string("f")); }

  /// The first inputs, which the results replace: read as elements of the output's shape, or not at all.
  virtual std::size_t replaced(const Expressions& /*f*/) const { return 0; }

  /// The way in which input k is read. ERRORS: not at all, or in two ways, or by blocks.
  Reads reads(const Expressions& f, std::size_t k) const {
    const std::vector<Reads> found = f.reads_of(static_cast<int>(k));
    if (k < replaced(f) && found.empty()) return Reads::same;
    if (found.empty()) fail("'" + f.text() + "' does not read " + letter_of(k) + ": leave the input out");
    if (found.size() > 1) fail("'" + f.text() + "' reads " + letter_of(k) + " in two ways, such as b and b[c]");
    if (found[0] == Reads::block)
      fail("'" + f.text() + "' reads " + letter_of(k) + " by blocks, which rules of map_update_N alone do");
    return found[0];
  }
  /// The first input that is read so, or none.
  std::optional<std::size_t> first_read(const Expressions& f, Reads how) const {
    for (int k = 0; k < f.inputs(); ++k) {
      if (reads(f, index(k)) == how) return index(k);
    }
    return std::nullopt;
  }
  /// The input that has rows and channels, or, with "columns", rows.
  std::size_t leading_input(const Expressions& f, const Attributes& attributes) const {
    const bool of_rows = attributes.has("columns");
    const std::optional<std::size_t> leading = first_read(f, of_rows ? Reads::row : Reads::same);
    if (!leading) fail("'" + f.text() + "' reads no input of the output's shape");
    if (of_rows && first_read(f, Reads::same)) fail("'" + f.text() + "' has columns of its own: leave 'columns' out");
    return *leading;
  }

  int rank_of(const Types& in, const Expressions& f, const Attributes& attributes) const {
    const int rank = in[leading_input(f, attributes)]->shape.rank();
    return static_cast<int>(attributes.integer_or("rank", rank));
  }

  /// The shape of the elements, for which all inputs are checked.
  Shape checked_shape(const Types& in, const Expressions& f, const Attributes& attributes) const {
    f.steps();
    if (f.inputs() != static_cast<int>(in.size())) {
      fail("'" + f.text() + "' reads " + std::to_string(f.inputs()) + " inputs, there are " + std::to_string(in.size()));
    }
    Shape shape = present(in, leading_input(f, attributes)).shape;
    if (attributes.has("columns")) {
      require(shape.rank() > 0 && attributes.integer("columns") > 0, "rows of 'columns' channels must have at least one");
      if (shape.rank() < rank_of(in, f, attributes)) shape = with_last(shape, 1);
      shape[shape.rank() - 1] = attributes.integer("columns");
    }
    for (std::size_t k = 0; k < in.size(); ++k) check_operand(in, k, reads(f, k), f.elements_of(static_cast<int>(k)), shape);
    return shape;
  }

  void require_one_result(const Expressions& f) const {
    if (f.results().size() != 1)
      fail("'" + f.text() + "' has " + std::to_string(f.results().size()) + " results, it must have one");
  }

  /// True if one input is partial, all others are there as they are, and results are proportional to it.
  bool keeps_summands(const AxisSharding& axis, const Expressions& f) const {
    int summands = -1;
    for (std::size_t k = 0; k < axis.inputs.size(); ++k) {
      if (axis.inputs[k].is_replicate()) continue;
      if (!axis.inputs[k].is_partial() || summands >= 0 || reads(f, k) != Reads::same) return false;
      summands = static_cast<int>(k);
    }
    return summands >= 0 && f.proportional_to(summands);
  }
  /// As the first input that is read so and lies in parts.
  Placement parts_of(const AxisSharding& axis, const Expressions& f, Reads leads) const {
    for (std::size_t k = 0; k < axis.inputs.size(); ++k) {
      if (reads(f, k) == leads && (axis.inputs[k].is_shard() || axis.inputs[k].is_flat())) return axis.inputs[k];
    }
    return Placement::replicate();
  }
  /// Where the elements lie: as those inputs do that have all of them.
  Placement placement_of(const AxisSharding& axis, const Expressions& f, const Attributes& attributes, int last) const {
    const Reads leads = attributes.has("columns") ? Reads::row : Reads::same;
    const Placement placement = parts_of(axis, f, leads);
    const bool broadcasts = first_read(f, Reads::channel) || first_read(f, Reads::row);
    const bool numbers = f.reads_channel();
    if (placement.is_flat() && (broadcasts || numbers)) return Placement::replicate();  // a flat slice knows no channels
    return (leads == Reads::row || numbers) && placement.is_shard(last) ? Placement::replicate() : placement;
  }
  void place_inputs(AxisSharding& axis, const Expressions& f, Placement whole, int last) const {
    for (std::size_t k = 0; k < axis.inputs.size(); ++k) axis.inputs[k] = placement_read(reads(f, k), whole, last);
  }

  /// True if the output is the logarithm of the sum of the result's exponentials.
  virtual bool is_logarithm_of_exponentials(const Attributes& /*attributes*/) const { return false; }

  /// Emits the gradients by all inputs. The expressions read the gradients of the outputs by `seeds`.
  void differentiate_by_inputs(Differentiator& d, const Instruction& i, Reads seeds) const {
    const Expressions f = expressions(i.attributes);
    for (const TensorId output : i.outputs) {
      if (output != no_tensor && d.is_root(output) && d.gradient(output) != no_tensor)
        fail("a loss is read by other instructions, which are trained on: it must be a loss alone");
    }
    if (i.attributes.has("columns")) fail("'" + f.text() + "' has no gradient: the channels of its rows are of no input");
    for (std::size_t k = 0; k < i.inputs.size(); ++k) {
      if (d.requires_grad(i.inputs[k]) && reads(f, k) == Reads::element) {
        fail("'" + f.text() + "' has no gradient by " + letter_of(k) +
             ", which it reads by elements: freeze what it depends on, or write it as a tensor of the output's shape");
      }
    }
    same_gradients(d, i, f, seeds);
    for (std::size_t k = 0; k < i.inputs.size(); ++k) {
      if (!d.requires_grad(i.inputs[k])) continue;
      if (reads(f, k) == Reads::channel) channel_gradient(d, i, f, seeds, k);
      if (reads(f, k) == Reads::row) row_gradient(d, i, f, seeds, k);
    }
  }

  /// Says the channels of elements of which no input has all.
  static void set_columns(Attributes& attributes, const Shape& whole) {
    attributes.set("columns", whole.last());
    attributes.set("rank", std::int64_t{whole.rank()});
  }

  static Shape with_last(Shape shape, std::int64_t extent) {
    shape.push_back(extent);
    return shape;
  }
  static Shape without_last(const Shape& shape) {
    Shape shorter;
    for (int dim = 0; dim + 1 < shape.rank(); ++dim) shorter.push_back(shape[dim]);
    return shorter;
  }

 private:
  /// The shape of an input that is read in that way beside elements of shape `whole`; nothing of an element, which lies in a
  /// vector of any length.
  static std::optional<Shape> shape_read(Reads reads, const Shape& whole) {
    Shape shape = whole;
    switch (reads) {
      case Reads::same:
        return shape;
      case Reads::channel:
        return Shape{whole.last()};
      case Reads::row:
        if (whole.rank() > 0) shape[whole.rank() - 1] = 1;
        return shape;
      case Reads::block:
      case Reads::element:
        return std::nullopt;
    }
    return std::nullopt;
  }
  void check_operand(const Types& in, std::size_t k, Reads how, int elements, const Shape& whole) const {
    const TensorType& type = present(in, k);
    if (type.dtype != DType::f32 && type.dtype != DType::bf16 && type.dtype != DType::i32) {
      fail(letter_of(k) + " is " + std::string(name_of(type.dtype)) + ", it must be f32, bf16 or i32");
    }
    const std::optional<Shape> shape = shape_read(how, whole);
    if (shape && how == Reads::row && whole.rank() > 1 && type.shape == without_last(whole)) return;
    if (shape && type.shape != *shape)
      fail(letter_of(k) + " has the shape " + type.shape.text() + ", by the way in which it is read it must be " + shape->text());
    if (!shape && (type.shape.rank() > 1 || type.shape.elements() < elements)) {
      fail(letter_of(k) + " has the shape " + type.shape.text() + ", which has no element " + std::to_string(elements - 1) +
           " of a vector");
    }
  }
  static Placement placement_read(Reads how, Placement whole, int last) {
    if (how == Reads::same) return whole;
    if (how == Reads::channel) return whole.is_shard(last) ? Placement::shard(0) : Placement::replicate();
    if (how == Reads::row) return whole.is_shard(last) || whole.is_flat() ? Placement::replicate() : whole;
    return Placement::replicate();
  }

  /// The gradient by input k as an expression of the forward inputs and, behind them, the gradients of the outputs.
  struct Gradient {
    Expressions f;
    std::vector<TensorId> inputs;
  };
  /// Constants other than 0, as results that have the shape of an input: of a total the gradient by its summands may be the same
  /// everywhere, and a map needs an input whose shape it has. (max(1, -|a|) is 1, or no number where a is none.)
  static std::vector<int> as_elements(Expressions& f, std::vector<int> results, int input) {
    const int size = f.apply(Function::abs, {f.input(input), -1, -1});
    const int one = f.apply(Function::max, {f.constant(1), f.apply(Function::negate, {size, -1, -1}), -1});
    for (int& result : results) result = f.apply(Function::multiply, {result, one, -1});
    return results;
  }

  /// By several inputs at once, one result each; inputs that no result reads are left out.
  Gradient gradient(Differentiator& d, const Instruction& i, Expressions f, Reads seed,
                    const std::vector<std::size_t>& by) const {
    std::vector<TensorId> operands = i.inputs;
    std::vector<int> seeds;
    for (const TensorId output : i.outputs) {
      const TensorId dy = output == no_tensor ? no_tensor : d.gradient(output);
      seeds.push_back(output != no_tensor && d.is_root(output) ? f.constant(1) : -1);
      if (dy == no_tensor) continue;
      if (operands.size() == Expressions::max_inputs) fail(too_many);
      seeds.back() = f.input(static_cast<int>(operands.size()), seed);
      operands.push_back(dy);
      if (!is_logarithm_of_exponentials(i.attributes)) continue;
      if (operands.size() == Expressions::max_inputs) fail(too_many);
      const int whole = f.input(static_cast<int>(operands.size()), seed),
                behind = f.apply(Function::subtract, {f.results()[0], whole, -1}),
                share = f.apply(Function::exp, {behind, -1, -1});
      seeds.back() = f.apply(Function::multiply, {share, seeds.back(), -1});
      operands.push_back(output);
    }
    std::vector<int> results;
    for (const std::size_t k : by) {
      const int node = f.input(static_cast<int>(k), reads(expressions(i.attributes), k));
      results.push_back(f.gradient(seeds, node));
    }
    f.set_results(results);
    if (f.inputs() == 0) f.set_results(as_elements(f, results, static_cast<int>(by[0])));
    std::vector<int> places(operands.size(), -1);
    Gradient made;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (f.reads_of(static_cast<int>(k)).empty()) continue;
      places[k] = static_cast<int>(made.inputs.size());
      made.inputs.push_back(operands[k]);
    }
    made.f = f.renumbered(places);
    return made;
  }

  /// By the inputs of the outputs' shape: one instruction for those whose gradients have one dtype.
  void same_gradients(Differentiator& d, const Instruction& i, const Expressions& f, Reads seeds) const {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      std::vector<std::size_t> by;
      for (std::size_t k = 0; k < i.inputs.size(); ++k) {
        const bool wanted = d.requires_grad(i.inputs[k]) && reads(f, k) == Reads::same;
        if (wanted && d.gradient_dtype(i.inputs[k]) == dtype) by.push_back(k);
      }
      if (by.empty()) continue;
      const Gradient made = gradient(d, i, f, seeds, by);
      std::vector<std::string> names;
      for (const std::size_t k : by) names.push_back(d.program()[i.inputs[k]].name + ".grad");
      const std::vector<TensorId> gradients = emit(d, made, dtype, d.program()[i.inputs[by[0]]].shape, names);
      for (std::size_t r = 0; r < by.size(); ++r) d.accumulate_grad(i.inputs[by[r]], gradients[r]);
    }
  }

  /// By a vector of channels: the sum over rows of the gradient by elements.
  void channel_gradient(Differentiator& d, const Instruction& i, const Expressions& f, Reads seeds, std::size_t k) const {
    const TensorId vector = i.inputs[k];
    const std::string name = d.program()[vector].name + ".grad";
    const Tensor whole = d.program()[i.inputs[leading_input(f, i.attributes)]];
    require(whole.shape.rank() == 3, "the gradient by channels is there for activations [batch, sequence, channels]");
    const TensorId elements = emit(d, gradient(d, i, f, seeds, {k}), whole.dtype, whole.shape, {name + ".elements"})[0];
    const Attributes attributes{{"dtype", dtype_value(d.gradient_dtype(vector))}};
    d.accumulate_grad(vector, d.build().emit_one("linear_bias_grad", {elements, d.accumulator(vector)}, attributes, name));
  }

  /// By a column: the sum over channels.
  void row_gradient(Differentiator& d, const Instruction& i, const Expressions& f, Reads seeds, std::size_t k) const {
    const Gradient made = gradient(d, i, f, seeds, {k});
    if (made.inputs.empty()) fail(zero);
    Attributes attributes{
        {"f", made.f.text()}, {"by", std::string("sum")}, {"dtype", dtype_value(d.gradient_dtype(i.inputs[k]))}};
    const Shape& whole = d.program()[i.inputs[leading_input(f, i.attributes)]].shape;
    if (!first_read(made.f, Reads::same)) set_columns(attributes, whole);
    if (d.program()[i.inputs[k]].shape.rank() < whole.rank()) attributes.set("squeeze", std::int64_t{1});
    const std::string name = d.program()[i.inputs[k]].name + ".grad";
    d.accumulate_grad(i.inputs[k], d.build().emit_one("reduce", made.inputs, attributes, name));
  }

  /// The results of a gradient, of that shape; where it is one incoming gradient as it is, that.
  std::vector<TensorId> emit(Differentiator& d, const Gradient& made, DType dtype, const Shape& shape,
                             const std::vector<std::string>& names) const {
    if (made.inputs.empty()) fail(zero);
    if (made.inputs.size() == 1 && made.f.multiple_of(0) == 1.0 && d.program()[made.inputs[0]].dtype == dtype) return made.inputs;
    Attributes attributes{{"f", made.f.text()}};
    const std::optional<std::size_t> whole = first_read(made.f, Reads::same);
    if (!whole) set_columns(attributes, shape);
    if (!whole || d.program()[made.inputs[*whole]].dtype != dtype) attributes.set("dtype", dtype_value(dtype));
    return d.build().emit("map", made.inputs, attributes, names);
  }

  static constexpr const char* too_many = "its gradient has more than 12 inputs: divide the expression into two";
  static constexpr const char* zero = "a gradient is 0 everywhere: the expression does not depend on a trained input";
};

}  // namespace consist::ops
