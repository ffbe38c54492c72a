// Ops of my-diloco that send nothing: "my_own_gradient" and "my_begin_round".
#include <consist/error.h>
#include <consist/op.h>

#include <string>

namespace {

using namespace consist;

void require(bool holds, std::string_view op, const char* what) {
  if (!holds) throw ProgramError(std::string(op) + ": " + what);
}

/// Gradients of which each rank of attribute "axis" has a summand, times `ranks`: the rank's own mean in place of what it adds to
/// the mean over all. Along the axis it counts as replicated although each rank has another one: whoever emits it wants replicas
/// that differ.
class OwnGradient final : public Op {
 public:
  std::string_view name() const noexcept override { return "my_own_gradient"; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    require(!in.empty() && attributes.integer("ranks") > 0, name(), "there are no gradients, or no ranks");
    for (const std::optional<TensorType>& type : in) require(type && type->dtype == DType::f32, name(), "gradients must be f32");
    return in;
  }
  void shard(AxisSharding& axis, const Types&, const Attributes& attributes) const override {
    axis.outputs = axis.inputs;
    if (!attributes.axes("axis").contains(axis.axis)) return;
    for (Placement& output : axis.outputs) {
      require(output.is_partial(), name(), "what is no summand has no mean of its own");
      output = Placement::replicate();
    }
  }
  int updates_in_place(int output) const noexcept override { return output; }
};

/// Inputs: steps that are done, then pairs of a parameter and its anchor. Where a round of `every` steps begins, each anchor
/// becomes its parameter.
class BeginRound final : public Op {
 public:
  std::string_view name() const noexcept override { return "my_begin_round"; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    require(attributes.integer("every") > 0, name(), "a round has a step at least");
    require(in.size() > 1 && in.size() % 2 == 1, name(), "its inputs are a count and pairs");
    Types out;
    for (std::size_t i = 1; i < in.size(); i += 2) {
      require(in[i] && in[i]->dtype == DType::f32 && in[i] == in[i + 1], name(), "a parameter and its anchor differ in type");
      out.push_back(in[i + 1]);
    }
    return out;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes&) const override {
    axis.inputs[0] = Placement::replicate();  // a rank that had a summand of the count alone would begin rounds of its own
    for (std::size_t i = 1; i < in.size(); i += 2) {
      require(axis.inputs[i] == axis.inputs[i + 1] && !axis.inputs[i].is_partial(), name(),
              "a parameter and its anchor lie apart");
      axis.outputs.push_back(axis.inputs[i]);
    }
  }
  int updates_in_place(int output) const noexcept override { return 2 + 2 * output; }
};

const Op& own = registry().add(std::make_unique<OwnGradient>());
const Op& begin = registry().add(std::make_unique<BeginRound>());

}  // namespace
