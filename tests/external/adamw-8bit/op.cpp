// The op "adamw_8bit": an update of blocks of elements.
#include <consist/error.h>
#include <consist/op.h>

#include <algorithm>
#include <string>

namespace {

using namespace consist;

constexpr std::size_t states = 4, stride = 3 + states;  // codes1 of the moment, codes2 of the root, their scales

/// Inputs: scalars of AdamW, clip, then value, gradient, master? and the states of each parameter; outputs: value, master? and
/// states, in place. In the order that Op::states_per_update() asks for.
class Adamw8bit final : public Op {
 public:
  std::string_view name() const noexcept override { return "adamw_8bit"; }
  int states_per_update() const noexcept override { return states; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    for (const char* constant : {"beta1", "beta2", "epsilon", "weight_decay"}) attributes.real(constant);
    const std::int64_t block = attributes.integer("block");
    require(in.size() > 2 && (in.size() - 2) % stride == 0 && in[0] && in[1],
            "its inputs are scalars, clip, and seven of each parameter");
    Types out;
    for (std::size_t p = 2; p < in.size(); p += stride) {
      for (const std::size_t i : {0, 1, 3, 4, 5, 6}) require(in[p + i].has_value(), "a tensor of a parameter is missing");
      const Shape& shape = in[p]->shape;
      require(in[p + 1]->shape == shape && in[p + 3] == TensorType{DType::e4m3, shape} && in[p + 4] == in[p + 3],
              "gradient and moments are like the parameter, the latter in e4m3");
      Shape blocks = shape;
      blocks[shape.rank() - 1] /= block;
      require(in[p + 5] == TensorType{DType::f32, blocks} && in[p + 6] == in[p + 5], "there is a scale of each block of a row");
      out.push_back(in[p]);
      out.insert(out.end(), in.begin() + static_cast<std::ptrdiff_t>(p + 2),
                 in.begin() + static_cast<std::ptrdiff_t>(p + stride));
    }
    return out;
  }
  /// Elements and blocks are divided alike: Consist has refused layouts that divide a block.
  void shard(AxisSharding& axis, const Types& in, const Attributes&) const override {
    axis.inputs[0] = axis.inputs[1] = Placement::replicate();
    for (std::size_t p = 2; p < in.size(); p += stride) {
      std::fill_n(axis.inputs.begin() + static_cast<std::ptrdiff_t>(p), stride, axis.inputs[p + 3]);
      axis.outputs.insert(axis.outputs.end(), stride - 1, axis.inputs[p + 3]);
    }
  }
  int updates_in_place(int output) const noexcept override {
    constexpr int outputs = stride - 1;
    const int of = output / outputs, which = output % outputs;
    return 2 + of * static_cast<int>(stride) + (which == 0 ? 0 : which + 1);
  }

 private:
  void require(bool holds, const char* what) const {
    if (!holds) throw ProgramError(std::string(name()) + ": " + what);
  }
};

const Op& adamw_8bit = registry().add(std::make_unique<Adamw8bit>());

}  // namespace
