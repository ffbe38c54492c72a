// SGD whose evaluations read the last norm's weight plus its momentum, as averages.cpp does by a pass of its own.
#include <vector>

#include "consist/optimizer.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

class Summed final : public Optimizer {
 public:
  explicit Summed(const Options& /*options*/) {}
  std::vector<OptimizerState> states(const Parameter& /*parameter*/, const Shape& /*shape*/) const override {
    return {"momentum"};
  }
  std::vector<double> evaluated(const Parameter& parameter, const Shape& /*shape*/) const override {
    return parameter.name == "model.norm.weight" ? std::vector<double>{1} : std::vector<double>{};
  }
  std::size_t scalar_count() const override { return 2; }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    out[0] = static_cast<float>(learning_rate);
    out[1] = static_cast<float>(step);
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    emit_update(builder, "sgd", scalars, clip, group, {{"momentum", 0.9}, {"nesterov", std::int64_t{0}}});
  }
  std::string describe() const override { return "SGD, evaluated elsewhere"; }
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, Summed, "summed", "1.0.0", "SGD whose evaluations add a state");
CONSIST_PLUGIN_NO_OPTIONS();
