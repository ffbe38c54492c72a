// The ops of the two optimizers: "my_lion", an update of single elements, and "my_orthogonal", which needs whole matrices.
#include <consist/error.h>
#include <consist/op.h>

#include <algorithm>
#include <string>

namespace {

using namespace consist;

void require(bool holds, std::string_view op, const char* what) {
  if (!holds) throw ProgramError(std::string(op) + ": " + what);
}

/// Inputs: scalars (the rate first), clip, then value, gradient, master and momentum of each parameter; outputs: value, master
/// and momentum of each, in place. In the order that Op::states_per_update() asks for.
class MyLion final : public Op {
 public:
  std::string_view name() const noexcept override { return "my_lion"; }
  int states_per_update() const noexcept override { return 1; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    for (const char* constant : {"beta1", "beta2", "weight_decay"}) attributes.real(constant);
    require(in.size() >= 6 && in.size() % 4 == 2 && in[0] && in[1], name(),
            "its inputs are scalars, clip, and four of each parameter");
    Types out;
    for (std::size_t p = 2; p < in.size(); p += 4) {
      require(in[p] && in[p + 1] && in[p + 3], name(), "a value, a gradient or a momentum is missing");
      for (std::size_t i = p + 1; i < p + 4; ++i)
        require(!in[i] || in[i]->shape == in[p]->shape, name(), "a parameter's tensors differ in shape");
      out.insert(out.end(), {in[p], in[p + 2], in[p + 3]});
    }
    return out;
  }
  /// Places all tensors of a parameter as its momentum is, which is a state and stays where it is.
  void shard(AxisSharding& axis, const Types& in, const Attributes&) const override {
    axis.inputs[0] = axis.inputs[1] = Placement::replicate();
    for (std::size_t p = 2; p < in.size(); p += 4) {
      const Placement placement = axis.inputs[p + 3];
      require(!placement.is_partial(), name(), "a momentum is no sum");
      std::fill_n(axis.inputs.begin() + static_cast<std::ptrdiff_t>(p), 4, placement);
      axis.outputs.insert(axis.outputs.end(), 3, placement);
    }
  }
  int updates_in_place(int output) const noexcept override {
    constexpr int input[] = {0, 2, 3};  // of value, master and momentum, from where the parameter's inputs begin
    return 2 + output / 3 * 4 + input[output % 3];
  }
};

/// About the orthogonal matrix that is nearest to x: `iterations` of Newton-Schulz. x, y: f32 [rows, columns].
class MyOrthogonal final : public Op {
 public:
  std::string_view name() const noexcept override { return "my_orthogonal"; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    require(in.size() == 1 && in[0] && in[0]->shape.rank() == 2 && in[0]->dtype == DType::f32, name(), "x must be an f32 matrix");
    require(attributes.integer("iterations") > 0, name(), "there must be an iteration");
    return {in[0]};
  }
  /// However x lies, whole is how it is wanted.
  void shard(AxisSharding& axis, const Types&, const Attributes&) const override {
    axis.inputs[0] = Placement::replicate();
    axis.outputs = {Placement::replicate()};
  }
  /// Counts for each iteration: x xᵀ, its square, and a polynomial of the two times x.
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    const Shape shape = program.local(i.inputs[0]);
    const double less = static_cast<double>(std::min(shape[0], shape[1])),
                 more = static_cast<double>(std::max(shape[0], shape[1]));
    cost.flops = static_cast<double>(i.attributes.integer("iterations")) * (4 * less * less * more + 2 * less * less * less);
    return cost;
  }
};

const Op& lion = registry().add(std::make_unique<MyLion>());
const Op& orthogonal = registry().add(std::make_unique<MyOrthogonal>());

}  // namespace
