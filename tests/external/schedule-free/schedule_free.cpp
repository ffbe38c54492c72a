// Schedule-free AdamW (Defazio et al., 2024, arXiv 2405.15682). Gradients are taken at y = (1 - beta1) z + beta1 x: z moves by
// AdamW's steps, and x, an average of z, is what evaluations and exports read. Kept are y, the weight, and ahead = z - y, which
// is zero at first, so that x = y - (1 - beta1) / beta1 ahead. Its rule is expressions, which every device computes.
#include <consist/error.h>
#include <consist/expression.h>
#include <consist/optimizer.h>
#include <consist/plugin.h>

#include <cmath>
#include <string>

namespace {

using namespace consist;

class ScheduleFree final : public Optimizer {
 public:
  explicit ScheduleFree(const Options& options)
      : beta1_(options.real("beta1")), beta2_(options.real("beta2")), epsilon_(options.real("epsilon")) {}

  std::vector<OptimizerState> states(const Parameter&, const Shape&) const override {
    return {{"moment2", StateShape::like_parameter, DType::f32},
            {"ahead", StateShape::like_parameter, DType::f32},
            {"weight_sum", StateShape::scalar, DType::f32},
            {"largest_rate", StateShape::scalar, DType::f32}};
  }
  std::vector<double> evaluated(const Parameter&, const Shape&) const override { return {0, (beta1_ - 1) / beta1_, 0, 0}; }

  std::size_t scalar_count() const override { return 2; }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    out[0] = static_cast<float>(learning_rate);
    out[1] = static_cast<float>(1 - std::pow(beta2_, static_cast<double>(step)));
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    if (group.stochastic_rounding) throw UsageError("my-schedule-free has no stochastic rounding: leave it out");
    const std::string beta1 = number_text(beta1_), beta2 = number_text(beta2_);
    // a: the weight, b: its gradient, c: rate and correction, d: clip, e: moment2, f: ahead, g: weight_sum, h: largest_rate
    const std::string rule = "t0=d[0]*b; t1=" + beta2 + "*e+(1-" + beta2 +
                             ")*t0*t0;"  // moment2
                             "t2=c[0]*(t0/(sqrt(t1/c[1])+" +
                             number_text(epsilon_) + ")+" + number_text(group.weight_decay) +
                             "*a);"                                                         // z's move
                             "t3=max(h[0],c[0]); t4=g[0]+t3*t3; t5=select(t4,t3*t3/t4,0);"  // z's share of x
                             "a+t5*f+t2*(" +
                             beta1 + "*(1-t5)-1); t1; (1-t5)*(f-" + beta1 + "*t2); t4; t3";
    emit_update(builder, "map_update_4", scalars, clip, group, {{"f", rule}});
  }
  std::string describe() const override {
    return "schedule-free AdamW, betas " + std::to_string(beta1_) + " and " + std::to_string(beta2_);
  }

 private:
  double beta1_, beta2_, epsilon_;
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, ScheduleFree, "my-schedule-free", "1.0.0",
               "AdamW that needs no learning-rate schedule");
CONSIST_PLUGIN_OPTIONS({"beta1", consist::OptionKind::real, "0.9", "how far gradients are taken from z to the average",
                        "0.01..<1"},
                       {"beta2", consist::OptionKind::real, "0.999", "of the second moment", "0..<1"},
                       {"epsilon", consist::OptionKind::real, "1e-8", "added to the root of the second moment", "0..1"});
