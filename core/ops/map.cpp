// map: expressions of the elements of its inputs (consist/expression.h), one result for each output.
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
};

}  // namespace

void register_map(OpRegistry& registry) {
  registry.add(std::make_unique<Map>());
}

}  // namespace consist::ops
