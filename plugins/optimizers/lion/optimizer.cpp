// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023):
//     c = beta1 m + (1 - beta1) g;  p -= rate (sign(c) + decay p);  m = beta2 m + (1 - beta2) g,  g clipped
// One state. Its authors use rates 3 to 10 times smaller than AdamW's, and a weight decay larger by as much.
#include <cstdio>

#include "consist/error.h"
#include "consist/optimizer.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

class Lion final : public Optimizer {
 public:
  explicit Lion(const Options& options) : beta1_(beta(options, "beta1")), beta2_(beta(options, "beta2")) {}
  std::vector<OptimizerState> states(const Parameter& /*parameter*/, const Shape& /*shape*/) const override {
    return {"momentum"};
  }
  std::size_t scalar_count() const override { return 2; }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    out[0] = static_cast<float>(learning_rate);
    out[1] = static_cast<float>(step);
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    emit_update(builder, "lion", scalars, clip, group, {{"beta1", beta1_}, {"beta2", beta2_}});
  }
  std::string describe() const override {
    char text[60];
    std::snprintf(text, sizeof text, "Lion, betas %g and %g", beta1_, beta2_);
    return text;
  }

 private:
  static double beta(const Options& options, const char* name) {
    const double value = options.real(name);
    if (value >= 0 && value < 1) return value;
    throw UsageError("--lion." + std::string(name) + " is " + std::to_string(value) + "; it must be at least 0 and below 1");
  }
  double beta1_, beta2_;
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, Lion, "lion", "1.0.0", "Lion: the sign of an interpolated momentum, one state");
CONSIST_PLUGIN_OPTIONS({"beta1", consist::OptionKind::real, "0.9", "interpolation of the update"},
                       {"beta2", consist::OptionKind::real, "0.99", "decay of the momentum"});
