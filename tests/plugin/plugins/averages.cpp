// SGD whose evaluations read another value of the last norm's weight: the weight and its momentum, a state that the step writes.
#include <utility>
#include <vector>

#include "consist/builder.h"
#include "consist/optimizer.h"
#include "consist/pass.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

void read_average(Program& forward, PassContext& context) {
  if (!context.evaluation) return;
  for (const Parameter& parameter : forward.parameters) {
    if (parameter.name != "model.norm.weight") continue;
    const std::vector<Instruction> rest = std::exchange(forward.instructions, {});
    Builder builder(forward);
    builder.tag.inserted_by = "averages.evaluate";
    const Tensor weight = forward[parameter.tensor];
    const TensorId momentum = builder.state(parameter.name + ".momentum", DType::f32, weight.shape, weight.placements);
    const TensorId copy = builder.emit_one("cast", {momentum}, {{"dtype", "f32"}});
    const TensorId sum = builder.emit_one("add", {copy, parameter.tensor}, {}, "average");
    for (Instruction i : rest) {
      for (TensorId& input : i.inputs) {
        if (input == parameter.tensor) input = sum;
      }
      forward.instructions.push_back(std::move(i));
    }
  }
}

class Averages final : public Optimizer {
 public:
  explicit Averages(const Options& /*options*/) {}
  std::vector<OptimizerState> states(const Parameter& /*parameter*/, const Shape& /*shape*/) const override {
    return {"momentum"};
  }
  std::size_t scalar_count() const override { return 2; }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    out[0] = static_cast<float>(learning_rate);
    out[1] = static_cast<float>(step);
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    emit_update(builder, "sgd", scalars, clip, group, {{"momentum", 0.9}, {"nesterov", std::int64_t{0}}});
  }
  void add_passes(PassList& passes) const override { passes.add(PassPoint::forward, {"averages.evaluate", read_average}); }
  std::string describe() const override { return "SGD, evaluated elsewhere"; }
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, Averages, "averages", "1.0.0", "SGD whose evaluations read a state");
CONSIST_PLUGIN_NO_OPTIONS();
