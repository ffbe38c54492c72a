// SGD whose rate falls by a count of its own, which a resumed run begins anew.
#include "consist/optimizer.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

class Counting final : public Optimizer {
 public:
  explicit Counting(const Options& /*options*/) {}
  std::vector<OptimizerState> states(const Parameter& /*parameter*/, const Shape& /*shape*/) const override { return {}; }
  std::size_t scalar_count() const override { return 2; }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    out[0] = static_cast<float>(learning_rate / (1 + count_++));
    out[1] = static_cast<float>(step);
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    emit_update(builder, "sgd", scalars, clip, group, {{"momentum", 0.0}, {"nesterov", std::int64_t{0}}});
  }
  std::string describe() const override { return "SGD that counts its steps"; }

 private:
  mutable int count_ = 0;
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, Counting, "counting", "1.0.0", "SGD that counts its own steps");
CONSIST_PLUGIN_NO_OPTIONS();
