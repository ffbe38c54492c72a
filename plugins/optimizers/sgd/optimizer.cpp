// SGD with momentum, in PyTorch's form: the weight decay is a term of the gradient, and the momentum begins at zero.
//     g' = clip g + decay p;  m = momentum m + g';  p -= rate m            (Nesterov: p -= rate (g' + momentum m))
// Without momentum there is no state.
#include <cstdio>

#include "consist/error.h"
#include "consist/optimizer.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const Options& options) : momentum_(options.real("momentum")), nesterov_(options.flag("nesterov")) {
    if (momentum_ < 0 || momentum_ >= 1)
      throw UsageError("--sgd.momentum is " + std::to_string(momentum_) + "; it must be at least 0 and below 1");
  }
  std::vector<OptimizerState> states(const Parameter& /*parameter*/, const Shape& /*shape*/) const override {
    return momentum_ > 0 ? std::vector<OptimizerState>{"momentum"} : std::vector<OptimizerState>{};
  }
  std::size_t scalar_count() const override { return 2; }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    out[0] = static_cast<float>(learning_rate);
    out[1] = static_cast<float>(step);
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    emit_update(builder, "sgd", scalars, clip, group,
                {{"momentum", momentum_}, {"nesterov", std::int64_t{nesterov_ ? 1 : 0}}});
  }
  std::string describe() const override {
    char text[60];
    std::snprintf(text, sizeof text, "SGD, momentum %g%s", momentum_, nesterov_ ? " (Nesterov)" : "");
    return text;
  }

 private:
  double momentum_;
  bool nesterov_;
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, Sgd, "sgd", "1.0.0", "SGD with momentum, as PyTorch's");
CONSIST_PLUGIN_OPTIONS({"momentum", consist::OptionKind::real, "0.9", "0: none, and no state"},
                       {"nesterov", consist::OptionKind::flag, "false", "Nesterov's momentum"});
