// The op "schedule_free": an update of single elements, beside two numbers of each parameter.
#include <consist/error.h>
#include <consist/op.h>

#include <algorithm>
#include <string>

namespace {

using namespace consist;

constexpr std::size_t states = 4, stride = 3 + states;  // moment2, ahead, weight_sum, largest_rate

/// Inputs: scalars, clip, then value, gradient, master? and the states of each parameter; outputs: value, master? and states, in
/// place. In the order that Op::states_per_update() asks for.
class ScheduleFree final : public Op {
 public:
  std::string_view name() const noexcept override { return "schedule_free"; }
  int states_per_update() const noexcept override { return states; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    for (const char* constant : {"beta1", "beta2", "epsilon", "weight_decay"}) attributes.real(constant);
    require(in.size() > 2 && (in.size() - 2) % stride == 0 && in[0] && in[1],
            "its inputs are scalars, clip, and seven of each parameter");
    const TensorType scalar{DType::f32, {}};
    Types out;
    for (std::size_t p = 2; p < in.size(); p += stride) {
      require(in[p] && in[p + 1] && in[p + 1]->shape == in[p]->shape, "a gradient is like its parameter");
      require(in[p + 3] == TensorType{DType::f32, in[p]->shape} && in[p + 4] == in[p + 3],
              "moment2 and ahead are like the parameter");
      require(in[p + 5] == scalar && in[p + 6] == scalar, "weight_sum and largest_rate are scalars");
      out.push_back(in[p]);
      out.insert(out.end(), in.begin() + static_cast<std::ptrdiff_t>(p + 2),
                 in.begin() + static_cast<std::ptrdiff_t>(p + stride));
    }
    return out;
  }
  /// Every rank keeps the scalars of all parameters.
  void shard(AxisSharding& axis, const Types& in, const Attributes&) const override {
    axis.inputs[0] = axis.inputs[1] = Placement::replicate();
    for (std::size_t p = 2; p < in.size(); p += stride) {
      std::fill_n(axis.inputs.begin() + static_cast<std::ptrdiff_t>(p), 5, axis.inputs[p + 3]);
      axis.inputs[p + 5] = axis.inputs[p + 6] = Placement::replicate();
      axis.outputs.insert(axis.outputs.end(), 4, axis.inputs[p + 3]);
      axis.outputs.insert(axis.outputs.end(), 2, Placement::replicate());
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

const Op& schedule_free = registry().add(std::make_unique<ScheduleFree>());

}  // namespace
