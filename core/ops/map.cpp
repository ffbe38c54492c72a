// map: expressions of the elements of its inputs (consist/expression.h), one result for each output. map_in_place: results that
// replace the first inputs.
#include "core/ops/expression_op.h"

namespace consist::ops {
namespace {

class Map final : public ExpressionOp {
 public:
  Map() : ExpressionOp("map") {}
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }
  bool makes_strided_view(int /*output*/) const noexcept override { return true; }
  /// A function of a parameter by elements: its gradient is summed over tokens, too, and wants the precision's dtype.
  bool passes_parameters_on() const noexcept override { return true; }

  std::optional<ChannelSplit> channel_split(const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    if (f.reads_channel()) return std::nullopt;  // a rank's first channel would not be number 0
    ChannelSplit split;
    for (int k = 0; k < f.inputs(); ++k) {
      if (f.reads_of(k) != std::vector{Reads::same}) continue;
      if (k != split.inputs) return std::nullopt;
      ++split.inputs;
    }
    return split;
  }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    const Shape shape = checked_shape(in, f, attributes);
    const DType dtype = attributes.has("dtype") ? dtype_attribute(attributes) : in[leading_input(f, attributes)]->dtype;
    require(dtype == DType::f32 || dtype == DType::bf16,
            "attribute 'dtype' must be f32 or bf16, and be there where the first input is i32");
    return Types(f.results().size(), TensorType{dtype, shape});
  }

  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    Placement placement = Placement::partial();
    if (!keeps_summands(axis, f)) {
      const int last = rank_of(in, f, attributes) - 1;
      placement = placement_of(axis, f, attributes, last);
      place_inputs(axis, f, placement, last);
    }
    axis.outputs.assign(f.results().size(), placement);
  }

  void differentiate(Differentiator& d, const Instruction& i) const override { differentiate_by_inputs(d, i, Reads::same); }

  /// Both expressions over the inputs of both. Summands of several results, or too many of them, are added as others are.
  TensorId emit_sum(Builder& builder, const Instruction& a, const Instruction& b) const override {
    if (a.outputs.size() != 1 || b.outputs.size() != 1 || !are_alike(builder[a.outputs[0]], builder[b.outputs[0]]))
      return no_tensor;
    Joined joined;
    if (!joined.add(a) || !joined.add(b)) return no_tensor;
    joined.f.set_results({joined.f.apply(Function::add, {joined.summands[0], joined.summands[1], -1})});
    if (joined.f.step_count() > Expressions::max_steps) return no_tensor;
    const Tensor sum = builder[b.outputs[0]];
    Attributes attributes{{"f", joined.f.text()}, {"dtype", dtype_value(sum.dtype)}};
    if (joined.f.first_read(Reads::same) < 0) set_columns(attributes, sum.shape);
    return builder.emit_one("map", joined.inputs, std::move(attributes), sum.name);
  }

 private:
  /// Expressions of several instructions over the inputs of all; one that is read in two ways is two.
  struct Joined {
    Expressions f;
    std::vector<int> summands;
    std::vector<TensorId> inputs;
    std::vector<Reads> reads;

    /// False where there are too many inputs.
    bool add(const Instruction& i) {
      const Expressions of = expressions(i.attributes);
      std::vector<int> places;
      for (std::size_t k = 0; k < i.inputs.size(); ++k) {
        const Reads how = of.reads_of(static_cast<int>(k)).at(0);
        std::size_t place = 0;
        while (place < inputs.size() && (inputs[place] != i.inputs[k] || reads[place] != how)) ++place;
        if (place == static_cast<std::size_t>(Expressions::max_inputs)) return false;
        if (place == inputs.size()) {
          inputs.push_back(i.inputs[k]);
          reads.push_back(how);
        }
        places.push_back(static_cast<int>(place));
      }
      summands.push_back(f.append(of, places)[0]);
      return true;
    }
  };
  /// The placements, too: those of the sum follow from all inputs, and summands over ranks must stay summands.
  static bool are_alike(const Tensor& x, const Tensor& y) {
    bool partial = false;
    for (int axis = 0; axis < Mesh::max_axes; ++axis) partial = partial || x.placements[axis].is_partial();
    return x.dtype == y.dtype && x.shape == y.shape && x.placements == y.placements && !partial;
  }
};

/// Result k replaces input k. All read what was there before. Of a flat slice the columns are those of an input that is read by
/// channels.
class MapInPlace final : public ExpressionOp {
 public:
  MapInPlace() : ExpressionOp("map_in_place") {}
  Separable separable() const noexcept override { return Separable::no; }
  bool takes_strided_view(int /*input*/) const noexcept override { return false; }
  int updates_in_place(int output) const noexcept override { return output; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    require(!attributes.has("columns"), "there are no elements of rows alone");
    require(!f.reads_channel(), "the number of a channel is that of a slice: map what depends on it first");
    const Shape shape = checked_shape(in, f, attributes);
    for (std::size_t k = 0; k < f.results().size(); ++k) {
      const TensorType& type = present(in, k);
      if (k >= in.size() || reads(f, k) != Reads::same || (type.dtype != DType::f32 && type.dtype != DType::bf16))
        fail("'" + f.text() + "' replaces " + letter_of(k) + ", which must be f32 or bf16 and be read as " + letter_of(k));
      require(type.shape == shape, "inputs that are replaced must be of one shape");
    }
    return {in.begin(), in.begin() + static_cast<std::ptrdiff_t>(f.results().size())};
  }

  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    const Expressions f = expressions(attributes);
    const Placement placement = axis.inputs[0];
    require(!placement.is_partial(), "summands cannot be replaced: input a must be there as it is");
    if (placement.is_flat() && first_read(f, Reads::row) && !first_read(f, Reads::channel))
      fail("'" + f.text() + "' reads rows of a flat slice, whose columns no input that is read by channels states");
    place_inputs(axis, f, placement, rank_of(in, f, attributes) - 1);
    axis.outputs.assign(f.results().size(), placement);
  }

 protected:
  std::size_t replaced(const Expressions& f) const override { return f.results().size(); }
};

}  // namespace

void register_map(OpRegistry& registry) {
  registry.add(std::make_unique<Map>());
  registry.add(std::make_unique<MapInPlace>());
}

}  // namespace consist::ops
